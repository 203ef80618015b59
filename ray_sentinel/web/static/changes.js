// Changes the earlier state into the present one. A change is [path, value], or [path, gaps,
// values] for some places of a list, each as far from the one before as its gap says.

export function change(told, changes) {
  for (const [path, ...to] of changes) {
    const name = path.at(-1), place = path.slice(0, -1).reduce((within, step) => within[step], told);
    if (to.length === 1) {
      place[name] = to[0];
      continue;
    }
    const [gaps, values] = to, list = place[name];
    let index = 0;
    gaps.forEach((gap, number) => { list[index += gap] = values[number]; });
  }
  return told;
}
