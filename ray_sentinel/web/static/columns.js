// Ranks, members and nodes come as columns, which are half as large on their way: each becomes a
// row again. The input is not changed.

export function unpacked({ status, levels, ...rest }) {
  const { columns, collectors } = status.nodes;
  const nodes = rows(columns).map((node) => ({ ...node, collectors: collectors[node.collectors],
    metrics_url: node.metrics_url.replace("//:", () => `//${node.address}:`) }));
  const jobs = status.jobs.map((job, at) => ({ ...job, ranks: ranks(job.ranks, status.time, levels?.jobs[at]), members: rows(job.members),
    levels: levels && { quantity: levels.quantity, width: levels.width } }));
  return { status: { ...status, nodes, jobs }, ...rest };
}

function ranks({ last_step: last, columns }, now, levels) {
  let number = 0, process = 0; // they come as differences
  const all = rows(columns);
  for (const [at, one] of all.entries()) {
    one.level = levels?.[at] ?? null;
    one.rank = number += one.rank;
    one.pid = process += one.pid;
    const tenths = one.tenths_earlier;
    one.step_age_seconds = tenths === null ? null : Math.max(0, now - last + tenths / 10);
  }
  return all;
}

function rows(columns) {
  const names = Object.keys(columns);
  return columns[names[0]].map((_, index) => {
    const one = {};
    for (const name of names) one[name] = columns[name][index];
    return one;
  });
}
