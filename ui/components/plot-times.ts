const SHOWN_MIN_SECONDS = 60

/** The times of an axis, at least a minute. uPlot proposes years if there is one sample, so its proposal is not used. */
export function shownTimes(times: ArrayLike<number>): [number, number] {
  const last = times[times.length - 1] ?? 0
  return [Math.min(times[0] ?? last, last - SHOWN_MIN_SECONDS), last]
}

/** Times in seconds, and the values of each line. */
export type PlotData = readonly [readonly number[], ...(readonly (readonly (number | null)[])[])]
