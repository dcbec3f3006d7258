/** States of views of the secrets core. */
import type { ComponentChildren } from 'preact'
import { useEffect } from 'preact/hooks'
import { ApiError } from '../../api/client.ts'
import { type Resource, type ShowPart, useResource } from '../../app/resource.ts'
import { isSealed, refreshSession, token } from '../../app/session.ts'
import { ErrorText, Failure, Loading, SealedState } from '../../components/states.tsx'

/** Data of the secrets core: dropped when the core is sealed or the token changes, and loaded again afterwards. */
export function useSecretsResource<T>(
  load: (signal: AbortSignal, showPart: ShowPart<T>) => Promise<T>,
  inputs: readonly unknown[],
): Resource<T> {
  return useResource(load, [...inputs, token.value, isSealed.value])
}

interface LoadedSecretsProps<T> {
  readonly resource: Resource<T>
  readonly children: (data: T) => ComponentChildren
  /** What to do if the server answers 404. */
  readonly missing?: string
}

/** As `Loaded`, with the states of a sealed core and of a missing path. */
export function LoadedSecrets<T>({ children, missing, resource: { data, error, reload } }: LoadedSecretsProps<T>) {
  const status = error instanceof ApiError ? error.status : undefined
  useEffect(() => {
    // The state is otherwise noticed at the next refresh of the session.
    if (status === 503) void refreshSession().catch(() => undefined)
  }, [status])
  useEffect(() => {
    if (!isSealed.value && data === undefined && error) reload()
  }, [isSealed.value])
  if (isSealed.value) return <SealedState />
  if (data === undefined) {
    if (!error) return <Loading />
    return <Failure error={error} retry={reload} hint={status === 404 ? missing : undefined} />
  }
  return (
    <>
      {error && <ErrorText error={error} />}
      {children(data)}
    </>
  )
}
