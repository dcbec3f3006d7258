/** Pieces that the views of the secrets core share. */
import { signal } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { ApiError, SEALED } from '../api/client.ts'
import type { Resource } from '../app/resource.ts'
import { Link } from './link.tsx'
import { ErrorText, Failure, Loading } from './states.tsx'
import { failureHint } from './failure-hint.ts'

const narrow = window.matchMedia('(max-width: 760px)')
/** True on a narrow screen, where tables have fewer columns. */
export const isNarrow = signal(narrow.matches)
narrow.addEventListener('change', ({ matches }) => (isNarrow.value = matches))

export type FactRow = readonly [name: string, value: ComponentChildren] | undefined | false

/** Names and values. Rows without a value are left out. */
export function Facts({ rows }: { readonly rows: readonly FactRow[] }) {
  const shown = rows.filter((row) => row !== undefined && row !== false)
  return (
    <dl class="facts">
      {shown.map(([name, value]) => (
        <>
          <dt key={`${name}-name`}>{name}</dt>
          <dd key={name}>{value}</dd>
        </>
      ))}
    </dl>
  )
}

/** Names such as policies, as labels. */
export function Names({
  names,
  empty = 'none',
}: {
  readonly names: readonly string[] | null
  readonly empty?: string
}) {
  if (names === null || names.length === 0) return <span class="muted">{empty}</span>
  return (
    <span class="names">
      {names.map((name) => (
        <span key={name} class="badge">
          {name}
        </span>
      ))}
    </span>
  )
}

export interface Action {
  readonly isBusy: boolean
  readonly error: Error | undefined
  /** Runs a request of the user. The error stays until the next one. */
  readonly run: (work: () => Promise<void>) => void
}

export function errorFrom(failure: unknown): Error {
  return failure instanceof Error ? failure : new Error(String(failure))
}

export function useAction(): Action {
  const [isBusy, setBusy] = useState(false)
  const [error, setError] = useState<Error>()
  const isLeft = useRef(false)
  useEffect(() => () => void (isLeft.current = true), [])
  const run = (work: () => Promise<void>) => {
    setBusy(true)
    setError(undefined)
    work()
      .catch((failure: unknown) => isLeft.current || setError(errorFrom(failure)))
      .finally(() => isLeft.current || setBusy(false))
  }
  return { isBusy, error, run }
}

/** As `Loaded`, with what to do after an error of the secrets core. */
export function CoreLoaded<T>({
  children,
  resource,
  hint,
}: {
  readonly resource: Resource<T>
  readonly children: (data: T) => ComponentChildren
  /** What to do without the permission. */
  readonly hint?: string
}) {
  const { data, error, reload } = resource
  if (data !== undefined) {
    return (
      <>
        {error && <ErrorText error={error} />}
        {children(data)}
      </>
    )
  }
  return error ? <CoreFailure error={error} hint={hint} retry={reload} /> : <Loading />
}

interface CoreFailureProps {
  readonly error: Error
  readonly hint?: string
  readonly retry?: () => void
}

export function CoreFailure({ error, hint, retry }: CoreFailureProps) {
  const isForbidden = error instanceof ApiError && error.isForbidden
  const isSealedCore = error.message === SEALED
  const known = isSealedCore ? undefined : failureHint(error)
  return (
    <>
      <Failure error={error} hint={isForbidden ? hint : known?.text} retry={retry} />
      {known?.link && <Link to={known.link.to}>{known.link.title}</Link>}
    </>
  )
}
