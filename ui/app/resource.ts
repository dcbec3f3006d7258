/** Data of a view: loaded, refreshed, and aborted when the view is left. */
import { isRefusal } from '../api/client.ts'
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'

export interface Resource<T> {
  /** The last result; kept while it is loaded again, and after an error. */
  readonly data: T | undefined
  readonly error: Error | undefined
  readonly isLoading: boolean
  /** Whether `data` is the beginning of a list whose rest is loaded. */
  readonly isPart: boolean
  /** Loads again, at once. */
  readonly reload: () => void
}

interface ResourceOptions {
  /** Loads again after this time, while the page is visible. A refusal ends this: another token starts the views again. */
  readonly everyMs?: number
}

interface State<T> {
  readonly data?: T
  readonly error?: Error
  readonly isLoading: boolean
  readonly isPart?: boolean
}

/** Shows the beginning of a list until all of it is loaded. Ignored while an earlier list is shown. */
export type ShowPart<T> = (data: T) => void

/**
 * Runs `load` when a value of `inputs` changes, and when `reload` is called. A result that arrives after such a change is ignored.
 */
export function useResource<T>(
  load: (signal: AbortSignal, showPart: ShowPart<T>) => Promise<T>,
  inputs: readonly unknown[],
  { everyMs }: ResourceOptions = {},
): Resource<T> {
  const [state, setState] = useState<State<T>>({ isLoading: true })
  const [round, setRound] = useState(0)
  const loader = useRef(load)
  loader.current = load
  const key = useRef<readonly unknown[]>(inputs)
  const isChanged = key.current.some((value, index) => value !== inputs[index])

  // The request leaves before the browser draws the frame that shows the loading state.
  useLayoutEffect(() => {
    const abort = new AbortController()
    const isSame = !key.current.some((value, index) => value !== inputs[index])
    key.current = inputs
    setState((before) => {
      if (before.isLoading && (isSame || (before.data === undefined && before.error === undefined))) return before
      return isSame ? { ...before, isLoading: true } : { isLoading: true }
    })
    const showPart: ShowPart<T> = (data) => {
      if (abort.signal.aborted) return
      setState((before) =>
        before.data === undefined || before.isPart ? { data, isLoading: true, isPart: true } : before,
      )
    }
    loader.current(abort.signal, showPart).then(
      (data) => abort.signal.aborted || setState({ data, isLoading: false }),
      (error: unknown) => {
        if (abort.signal.aborted) return
        const failure = error instanceof Error ? error : new Error(String(error))
        setState((before) => ({ ...before, error: failure, isLoading: false }))
      },
    )
    return () => abort.abort()
  }, [...inputs, round])

  const reload = useCallback(() => setRound((count) => count + 1), [])
  const isRefused = isRefusal(state.error)
  useEffect(() => {
    if (everyMs === undefined) return undefined
    if (isRefused) return undefined
    const timer = setInterval(() => document.visibilityState === 'visible' && reload(), everyMs)
    return () => clearInterval(timer)
  }, [everyMs, reload, isRefused])

  return isChanged
    ? { data: undefined, error: undefined, isLoading: true, isPart: false, reload }
    : { data: state.data, error: state.error, isLoading: state.isLoading, isPart: state.isPart === true, reload }
}
