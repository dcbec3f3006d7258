/** The editor of a secret. Writes check that no other version was written since the one that was read. */
import { useEffect, useState } from 'preact/hooks'
import { ApiError } from '../../../api/client.ts'
import { useKeys } from '../../../app/keys.ts'
import { address, navigate } from '../../../app/location.ts'
import { useResource } from '../../../app/resource.ts'
import { token } from '../../../app/session.ts'
import { showSuccess } from '../../../app/toasts.tsx'
import { UnsavedChanges } from '../../../app/unsaved.tsx'
import { Button } from '../../../components/button.tsx'
import { Empty, ErrorText } from '../../../components/states.tsx'
import { ConflictView } from './conflict-view.tsx'
import { type Draft, draftData, DraftFields, draftOf } from './draft-fields.tsx'
import { isCasConflict, readMetadata, readVersion, writeSecret } from '../kv.ts'
import type { SecretData } from '../secret-data.ts'
import type { EditBase, SecretContext } from './secret-context.ts'
import { isSameData } from './secret-diff.ts'
import { viewOf } from '../secret-path.ts'
import { LoadedSecrets } from '../states.tsx'

async function readBase({ mount, name }: SecretContext, signal?: AbortSignal): Promise<EditBase> {
  try {
    const found = await readVersion(mount, name, { signal })
    if (found) return { version: found.version, data: found.data ?? {}, isKnown: true }
    const metadata = mount.version === 2 ? await optional(readMetadata(mount, name, signal)) : undefined
    return { version: metadata?.current_version ?? 0, data: {}, isKnown: true }
  } catch (error) {
    if (!(error instanceof ApiError) || !error.isForbidden) throw error
    const metadata = mount.version === 2 ? await optional(readMetadata(mount, name, signal)) : undefined
    return { version: metadata?.current_version, data: {}, isKnown: false }
  }
}

/** Undefined if the token may not read it. */
async function optional<T>(read: Promise<T>): Promise<T | undefined> {
  try {
    return await read
  } catch (error) {
    if (error instanceof ApiError && error.isForbidden) return undefined
    throw error
  }
}

interface EditorStart {
  readonly base: EditBase
  readonly data: SecretData
}

async function readStart(context: SecretContext, from: number, signal: AbortSignal): Promise<EditorStart> {
  const base = await readBase(context, signal)
  if (from === 0) return { base, data: base.data }
  const old = await readVersion(context.mount, context.name, { version: from, signal })
  if (old?.data === undefined) throw new Error(`Version ${from} has no values: it was deleted, destroyed or pruned.`)
  return { base, data: old.data }
}

export function EditorTab({ context }: { readonly context: SecretContext }) {
  const from = Number(address.value.query.get('from') ?? '0')
  // Not loaded again when the core is sealed: the text of the user would be lost.
  const resource = useResource((signal) => readStart(context, from, signal), [context.mount.path, token.value])
  if (resource.data === undefined) return <LoadedSecrets resource={resource}>{() => null}</LoadedSecrets>
  const { base, data } = resource.data
  const isNew = base.version === 0
  if (context.isMayKnown && !context.may('data', isNew ? 'create' : 'update') && !context.may('data', 'update')) {
    return (
      <Empty title={`Your token may not write ${context.name}.`}>
        <p>Log in with another token, or ask for a policy with "create" and "update" on this path.</p>
      </Empty>
    )
  }
  return <Editor context={context} base={base} start={data} />
}

interface EditorProps {
  readonly context: SecretContext
  readonly base: EditBase
  readonly start: SecretData
}

function Editor({ base: first, context, start }: EditorProps) {
  const { act, edits, mount, name, reload } = context
  const [base, setBase] = useState(first)
  const [draft, setDraft] = useState<Draft>(() => draftOf(start))
  const [theirs, setTheirs] = useState<EditBase>()
  const [error, setError] = useState<Error>()
  const [isBusy, setBusy] = useState(false)
  useEffect(() => edits(base.version), [base.version])
  const parsed = draftData(draft)
  const hasChanges = parsed.data === undefined || !isSameData(base.data, parsed.data)

  const write = async (data: SecretData, cas: number | undefined) => {
    // A mount without versions has no check-and-set.
    if (mount.version === 1 && base.isKnown) {
      const current = await readBase(context)
      const known = theirs ?? base
      if (!isSameData(current.data, known.data)) {
        setTheirs(current)
        return
      }
    }
    let version = 0
    await act('write', async () => {
      version = await writeSecret(mount, name, data, cas)
    })
    showSuccess(version > 0 ? `Wrote version ${version} of ${name}.` : `Wrote ${name}.`)
    reload()
    navigate(viewOf(mount.path, name), { replace: true })
  }
  const save = (data: SecretData, cas: number | undefined) => {
    setBusy(true)
    setError(undefined)
    write(data, cas)
      .catch(async (failure: unknown) => {
        if (isCasConflict(failure)) setTheirs(await readBase(context))
        else throw failure
      })
      .catch((failure: unknown) => setError(failure instanceof Error ? failure : new Error(String(failure))))
      .finally(() => setBusy(false))
  }
  const submit = (event?: Event) => {
    event?.preventDefault()
    if (parsed.data) save(parsed.data, base.version)
    else setError(new Error('Correct the marked faults first.'))
  }
  useKeys('Editor', theirs ? [] : [{ keys: 'Mod+s', label: 'Save', run: () => hasChanges && submit() }])
  const discard = () => {
    reload()
    navigate(viewOf(mount.path, name), { replace: true })
  }
  return (
    <>
      <UnsavedChanges hasChanges={hasChanges} what={`The changes of ${name}`} />
      {theirs && parsed.data ? (
        <ConflictView
          base={base}
          mine={parsed.data}
          theirs={theirs}
          isBusy={isBusy}
          error={error}
          save={(data) => save(data, theirs.version)}
          discard={discard}
          edit={(data) => {
            setBase(theirs)
            setDraft(draftOf(data))
            setTheirs(undefined)
          }}
        />
      ) : (
        <form class="card form" onSubmit={submit} aria-label="Editor">
          <EditorIntroduction base={base} mount={mount} />
          <DraftFields draft={draft} onChange={setDraft} />
          {error && <ErrorText error={error} />}
          <div class="form-actions">
            <Button type="submit" kind="primary" isBusy={isBusy} isDisabled={!hasChanges && base.version !== 0}>
              Save
            </Button>
            <Button onClick={() => navigate(viewOf(mount.path, name))}>Cancel</Button>
          </div>
        </form>
      )}
    </>
  )
}

function EditorIntroduction({
  base: { isKnown, version },
  mount,
}: Pick<EditorProps, 'base'> & Pick<SecretContext, 'mount'>) {
  if (!isKnown) {
    return (
      <p class="notice">
        Your token may not read this secret. What you save replaces all of its keys
        {version === undefined && ', also if another client writes at the same time'}.
      </p>
    )
  }
  if (version === 0) return <p class="muted">{mount.version === 2 ? 'A new secret' : 'The secret is replaced'}</p>
  return (
    <p class="muted">
      Saving writes version {(version ?? 0) + 1}, if version {version} is still the current one.
    </p>
  )
}
