/** Samples of the use of a host or of an allocation's tasks, while their plots are on the screen. */
import { isRefusal } from '../../api/client.ts'
import { useEffect, useRef, useState } from 'preact/hooks'
import { TimeSeries } from './series.ts'

export const SAMPLE_MS = 2000
/** Ten minutes. */
const SAMPLES_MAX = 300
/** A sample that is late by more leaves a gap. */
const GAP_SECONDS = 10

export function newSeries(lines: number): TimeSeries {
  return new TimeSeries(lines, { capacity: SAMPLES_MAX, gapSeconds: GAP_SECONDS })
}

interface Sampled<T> {
  readonly latest: T | undefined
  readonly error: Error | undefined
  /** Changes with each sample. */
  readonly revision: number
}

/** Calls `read` at intervals, one call at a time, and `take` with each result. Pauses while the page is hidden or `isActive` is false. */
export function useSamples<T>(
  read: (signal: AbortSignal) => Promise<T>,
  take: (value: T) => void,
  { isActive, key }: { readonly isActive: boolean; readonly key: string },
): Sampled<T> {
  const [state, setState] = useState<Sampled<T>>({ latest: undefined, error: undefined, revision: 0 })
  const current = useRef({ read, take })
  current.current = { read, take }
  useEffect(() => {
    if (!isActive) return undefined
    const abort = new AbortController()
    let [isReading, isRefused] = [false, false]
    const sample = async () => {
      if (isReading || isRefused || document.visibilityState === 'hidden') return
      isReading = true
      try {
        const latest = await current.current.read(abort.signal)
        if (abort.signal.aborted) return
        current.current.take(latest)
        setState(({ revision }) => ({ latest, error: undefined, revision: revision + 1 }))
      } catch (error) {
        if (abort.signal.aborted) return
        isRefused = isRefusal(error)
        setState((before) => ({ ...before, error: error instanceof Error ? error : new Error(String(error)) }))
      } finally {
        isReading = false
      }
    }
    void sample()
    const timer = setInterval(() => void sample(), SAMPLE_MS)
    return () => {
      clearInterval(timer)
      abort.abort()
    }
  }, [isActive, key])
  return state
}

/** Whether the element is on the screen. */
export function useOnScreen(): readonly [(element: Element | null) => void, boolean] {
  const [element, setElement] = useState<Element | null>(null)
  const [isShown, setShown] = useState(false)
  useEffect(() => {
    if (!element) return undefined
    const observer = new IntersectionObserver((entries) => setShown(entries.at(-1)?.isIntersecting === true))
    observer.observe(element)
    return () => observer.disconnect()
  }, [element])
  return [setElement, isShown]
}
