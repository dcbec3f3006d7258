/** How many turns of the event loop go by: others were served that often. */

/** Counts from now on, until `end`, which tells them. By itself it makes none, and keeps no process going. */
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
