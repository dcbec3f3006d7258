/**
 * Checks that one server is active at a time. Each observation is an answer of a server that says which server is active, and
 * since when: the pair is one *activity*. An activity has no interruption, so between the end of its first observation
 * and the begin of its last one no other activity can be observed.
 */

export interface ActiveObservation {
  readonly askedMs: number
  readonly answeredMs: number
  /** The server that answered. */
  readonly server: string
  readonly active: string
  readonly since: string
}

interface Span {
  readonly name: string
  readonly first: ActiveObservation
  readonly last: ActiveObservation
}

/** One line for each pair of activities that overlap. */
export function overlappingActivities(observations: readonly ActiveObservation[]): readonly string[] {
  const byActivity = Map.groupBy(observations, ({ active, since }) => `${active} since ${since}`)
  const spans = [...byActivity].map(([name, seen]): Span => {
    const first = seen.reduce((a, b) => (b.answeredMs < a.answeredMs ? b : a))
    const last = seen.reduce((a, b) => (b.askedMs > a.askedMs ? b : a))
    return { name, first, last }
  })
  return spans.flatMap(({ first, last, name }) =>
    [...byActivity].flatMap(([other, seen]) => {
      if (other === name) return []
      const within = seen.find(({ answeredMs, askedMs }) => askedMs > first.answeredMs && answeredMs < last.askedMs)
      if (!within) return []
      const between = `${first.answeredMs.toFixed(0)} and ${last.askedMs.toFixed(0)} ms`
      return [
        `${name} is active between ${between}, but ${within.server} named ${other} at ${within.askedMs.toFixed(0)} ms`,
      ]
    }),
  )
}
