// Ranks, members and nodes come as columns, which are half as large on their way: each becomes a row
// again. What came stays as it is.

export function unpacked({ status, incidents }) {
  const { columns, collectors } = status.nodes;
  const nodes = rows(columns).map((node) => ({ ...node, collectors: collectors[node.collectors],
    metrics_url: node.metrics_url.replace("//:", () => `//${node.address}:`) }));
  const jobs = status.jobs.map((job) => ({ ...job, ranks: ranks(job.ranks, status.time), members: rows(job.members) }));
  return { status: { ...status, nodes, jobs }, incidents };
}

function ranks({ last_step: last, columns }, now) {
  let number = 0, process = 0; // they come as differences
  return rows(columns).map(({ tenths_earlier: tenths, ...one }) => ({
    ...one, rank: number += one.rank, pid: process += one.pid,
    step_age_seconds: tenths === null ? null : Math.max(0, now - last + tenths / 10),
  }));
}

function rows(columns) {
  const names = Object.keys(columns);
  return columns[names[0]].map((_, index) => Object.fromEntries(names.map((name) => [name, columns[name][index]])));
}
