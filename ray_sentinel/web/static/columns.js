// The ranks of a job come as columns, which are half as large on their way: each becomes one again.

export function unpacked(page) {
  for (const job of page.status.jobs) job.ranks = rows(job.ranks);
  return page;
}

function rows(columns) {
  const names = Object.keys(columns);
  let number = 0; // ranks come as differences
  return columns.rank.map((step, index) => {
    const one = Object.fromEntries(names.map((name) => [name, columns[name][index]]));
    one.rank = number += step;
    return one;
  });
}
