/** Counts turns of the event loop, in which other work could run. */

/** Counts from now until `end`, which returns the count. Does not keep the process running. */
export function countTurns(): { end(): number } {
  let turns = 0
  const next = () => {
    turns++
    immediate = setImmediate(next).unref()
  }
  let immediate = setImmediate(next).unref()
  return {
    end() {
      clearImmediate(immediate)
      return turns
    },
  }
}
