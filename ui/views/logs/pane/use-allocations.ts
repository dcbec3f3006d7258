/** The allocations of a target, for the names in its tail. */
import { useEffect, useState } from 'preact/hooks'
import { useResource } from '../../../app/resource.ts'
import { type LogTarget, pathOfTarget } from '../stream/log-target.ts'
import { type Allocation, allocationsOf } from './target-names.ts'

/** A server lists a new allocation up to a second after its host serves the log. */
const UNKNOWN_MS = 2000
const KNOWN_MS = 15_000
const NONE: readonly Allocation[] = []

/** Empty while the server does not list any. */
export function useAllocations(target: LogTarget): readonly Allocation[] {
  const [isKnown, setKnown] = useState(false)
  const everyMs = isKnown ? KNOWN_MS : UNKNOWN_MS
  const { data = NONE } = useResource((signal) => allocationsOf(target, signal), [pathOfTarget(target)], { everyMs })
  useEffect(() => setKnown(data.length > 0), [data.length])
  return data
}
