/** What a view shows instead of data. */
import { Component, type ComponentChildren } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import { SEALED } from '../api/client.ts'
import { path } from '../app/location.ts'
import { requestLogin } from '../app/login-request.ts'
import type { Resource } from '../app/resource.ts'
import { SECTIONS } from '../app/sections.ts'
import { isSealed, refreshSession, token, tokenInfo } from '../app/session.ts'
import { Button } from './button.tsx'
import { failureKind } from './failure-hint.ts'
import { Link } from './link.tsx'

export function Loading({ label = 'Loading' }: { readonly label?: string }) {
  return (
    <p class="state" role="status">
      {label}…
    </p>
  )
}

interface EmptyProps {
  readonly title: string
  /** What to do about it. */
  readonly children?: ComponentChildren
}

export function Empty({ children, title }: EmptyProps) {
  return (
    <div class="state">
      <p class="state-title">{title}</p>
      {children}
    </div>
  )
}

interface LoginNeededProps {
  readonly what: string
  /** What the server has refused. */
  readonly reason?: string
}

/** In place of data that needs a token. */
export function LoginNeeded({ reason, what }: LoginNeededProps) {
  return (
    <Empty title={`Log in to see ${what}`}>
      <p>
        {reason === undefined
          ? 'This server shows none without a token.'
          : `The server answers without a token: ${reason}`}
      </p>
      <div class="form-actions">
        <Button kind="primary" onClick={requestLogin}>
          Log in
        </Button>
      </div>
    </Empty>
  )
}

interface FailureProps {
  readonly error: Error
  readonly hint?: string
  readonly retry?: () => void
}

/** A failure in place of data, with what to do. A sealed core and a missing login have the same text in each view. */
export function Failure({ error, hint, retry }: FailureProps) {
  const kind = failureKind(error, { hasToken: token.value !== undefined, policies: tokenInfo.value?.policies ?? [] })
  if (kind === 'sealed') return <SealedState retry={retry} />
  if (kind === 'login') return <LoginNeeded what={subjectOf(path.value)} reason={error.message} />
  return (
    <div class="state" role="alert">
      <p class="state-title">{error.message}</p>
      {hint !== undefined && <p>{hint}</p>}
      {kind === 'refused' && <p>The policies of your token do not allow this.</p>}
      {kind === 'missing' && <p>No engine is mounted there: your token is a root token, which may use each of them.</p>}
      <div class="form-actions">
        {kind === 'refused' && <Button onClick={requestLogin}>Use another token</Button>}
        {retry && <Button onClick={retry}>Retry</Button>}
      </div>
    </div>
  )
}

function subjectOf(at: string): string {
  return SECTIONS.find(({ path: own }) => at === own || at.startsWith(`${own}/`))?.subject ?? 'this view'
}

/** Loads again when the core is unsealed. */
export function SealedState({ retry }: { readonly retry?: () => void }) {
  const wasSealed = useRef(isSealed.value)
  useEffect(() => {
    // The state is otherwise noticed at the next refresh of the session.
    if (!isSealed.value) void refreshSession().catch(() => undefined)
  }, [])
  useEffect(() => {
    if (wasSealed.current && !isSealed.value) retry?.()
    wasSealed.current = isSealed.value
  }, [isSealed.value])
  return (
    <Empty title={SEALED}>
      <p>
        This is available after the core is unsealed with enough key shares. <Link to="/seal">Unseal it</Link>
      </p>
    </Empty>
  )
}

/** A failure beside a form or in it. */
export function ErrorText({ error }: { readonly error: Error }) {
  return (
    <p class="error" role="alert">
      {error.message}
    </p>
  )
}

interface LoadedProps<T> {
  readonly resource: Resource<T>
  readonly children: (data: T) => ComponentChildren
}

/**
 * The data of a resource, or its state. After an error, the last data stays with the error above it. Data that cannot be shown, such as that of
 * a faulty host, is replaced by a failure, and the rest of the view stays.
 */
export function Loaded<T>({ children, resource: { data, error, reload } }: LoadedProps<T>) {
  if (data === undefined) return error ? <Failure error={error} retry={reload} /> : <Loading />
  return (
    <>
      {error && <ErrorText error={error} />}
      <RenderGuard data={data}>
        <Rendered data={data} render={children} />
      </RenderGuard>
    </>
  )
}

interface RenderedProps<T> {
  readonly data: T
  readonly render: (data: T) => ComponentChildren
}

/** Calls `render` below the guard. */
function Rendered<T>({ data, render }: RenderedProps<T>) {
  return <>{render(data)}</>
}

interface RenderGuardProps {
  readonly children: ComponentChildren
  /** Other data is rendered again after a failure. */
  readonly data?: unknown
}

interface RenderGuardState {
  readonly failed?: { readonly data: unknown; readonly error: Error } | undefined
}

/** Shows a failure in place of content that cannot be rendered. The rest of the page stays. */
export class RenderGuard extends Component<RenderGuardProps, RenderGuardState> {
  override state: RenderGuardState = {}

  override componentDidCatch(error: unknown): void {
    const { data } = this.props
    this.setState({ failed: { data, error: error instanceof Error ? error : new Error(String(error)) } })
  }

  override render({ children, data }: RenderGuardProps, { failed }: RenderGuardState) {
    if (!failed || failed.data !== data) return children
    return (
      <Failure
        error={new Error(`The view failed: ${failed.error.message}`)}
        hint="The server or a host sent data that the view cannot show."
        retry={() => this.setState({ failed: undefined })}
      />
    )
  }
}
