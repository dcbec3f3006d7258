/** A policy: its editor, and beside it the check of a request. */
import { useState } from 'preact/hooks'
import { useCapabilities } from '../../api/capabilities.ts'
import { useKeys } from '../../app/keys.ts'
import { navigate } from '../../app/location.ts'
import { showSuccess } from '../../app/toasts.tsx'
import { UnsavedChanges } from '../../app/unsaved.tsx'
import { Button } from '../../components/button.tsx'
import { CodeField } from '../../components/code-field.tsx'
import { Confirm } from '../../components/dialog.tsx'
import { Time } from '../../components/format.tsx'
import { Empty, ErrorText } from '../../components/states.tsx'
import { View } from '../../components/view.tsx'
import { LoadedSecrets, useSecretsResource } from '../secrets/states.tsx'
import { CheckPanel } from './check-panel.tsx'
import {
  DEFAULT,
  deletePolicy,
  isPolicyConflict,
  type Policy,
  policyPath,
  readPolicy,
  ROOT,
  writePolicy,
} from './policies.ts'
import { placeOf } from './policy-check.ts'
import { formatPolicy, type PolicyFaults, usePolicyFaults } from './use-policy-check.ts'

const TEMPLATE =
  '# Rules for paths without the leading /v1/\npath "secret/data/app/*" {\n  capabilities = ["read"]\n}\n'

export function PolicyView({ name }: { readonly name: string }) {
  const resource = useSecretsResource((signal) => readPolicy(name, signal).then((policy) => ({ policy })), [name])
  const path = policyPath(name)
  const may = useCapabilities([path])
  const [isDeleting, setDeleting] = useState(false)
  const policy = resource.data?.policy
  const mayDelete = policy !== undefined && name !== ROOT && name !== DEFAULT && may(path, 'delete')
  const remove = async () => {
    await deletePolicy(name)
    showSuccess(`Deleted the policy ${name}.`)
    navigate('/policies', { replace: true })
  }
  return (
    <View
      title={name}
      parents={[{ title: 'Policies', to: '/policies' }]}
      actions={
        mayDelete && (
          <Button kind="danger" onClick={() => setDeleting(true)}>
            Delete
          </Button>
        )
      }
    >
      <LoadedSecrets resource={resource}>
        {({ policy: saved }) =>
          name === ROOT ? (
            <Empty title="The policy root grants everything.">
              <p>It has no document and cannot be changed.</p>
            </Empty>
          ) : saved === undefined && may.isKnown && !may(path, 'create') && !may(path, 'update') ? (
            <Empty title={`There is no policy ${name}.`}>
              <p>Check its name in the list of policies.</p>
            </Empty>
          ) : (
            <PolicyEditor
              key={saved?.version ?? 0}
              name={name}
              saved={saved}
              mayWrite={may(path, saved === undefined ? 'create' : 'update') || may(path, 'update')}
              reload={resource.reload}
            />
          )
        }
      </LoadedSecrets>
      {isDeleting && (
        <Confirm title={`Delete ${name}?`} action="Delete" typed={name} run={remove} close={() => setDeleting(false)}>
          All tokens with this policy lose its permissions at once. This cannot be undone.
        </Confirm>
      )}
    </View>
  )
}

interface PolicyEditorProps {
  readonly name: string
  /** Undefined for a new policy. */
  readonly saved: Policy | undefined
  readonly mayWrite: boolean
  readonly reload: () => void
}

function PolicyEditor({ mayWrite, name, reload, saved }: PolicyEditorProps) {
  const [text, setText] = useState(saved?.policy ?? TEMPLATE)
  const [error, setError] = useState<Error>()
  const [theirs, setTheirs] = useState<Policy>()
  const [isBusy, setBusy] = useState(false)
  const check = usePolicyFaults(text)
  const { faults } = check
  const hasChanges = text !== (saved?.policy ?? TEMPLATE)
  const fault = faults[0]
  const write = async (before: Policy | undefined) => {
    const found = await writePolicy(name, text, before)
    showSuccess(`Saved the policy ${name}.`)
    for (const warning of found) showSuccess(warning)
    setTheirs(undefined)
    reload()
  }
  const save = (before: Policy | undefined) => {
    setBusy(true)
    setError(undefined)
    write(before)
      .catch(async (failure: unknown) => {
        if (!isPolicyConflict(failure)) throw failure
        setTheirs(await readPolicy(name))
      })
      .catch((failure: unknown) => setError(failure instanceof Error ? failure : new Error(String(failure))))
      .finally(() => setBusy(false))
  }
  const maySave = mayWrite && fault === undefined && (saved === undefined || hasChanges)
  useKeys('Policy', mayWrite ? [{ keys: 'Mod+s', label: 'Save', run: () => maySave && save(saved) }] : [])
  const format = () => {
    setError(undefined)
    setBusy(true)
    formatPolicy(text)
      .then((formatted) => setText((now) => (now === text ? formatted : now)))
      .catch((failure: unknown) => setError(failure instanceof Error ? failure : new Error(String(failure))))
      .finally(() => setBusy(false))
  }
  return (
    <div class="policy-parts">
      <UnsavedChanges hasChanges={mayWrite && hasChanges} what={`The changes of the policy ${name}`} />
      <section class="card" aria-label="Document">
        <Facts saved={saved} mayWrite={mayWrite} />
        <CodeField
          label={`Document of ${name}`}
          value={text}
          onInput={setText}
          faultLine={fault?.line}
          isReadOnly={!mayWrite}
          describedBy="policy-faults"
        />
        <Faults check={check} />
        {theirs && (
          <div class="notice" role="alert">
            Another client saved version {theirs.version} in the meantime.
            <details>
              <summary>Show its document</summary>
              <pre class="secret-json">{theirs.policy}</pre>
            </details>
            <Button kind="danger" isBusy={isBusy} onClick={() => save(theirs)}>
              Replace it with mine
            </Button>
            <Button onClick={reload}>Discard mine</Button>
          </div>
        )}
        {error && <ErrorText error={error} />}
        {mayWrite && (
          <div class="form-actions">
            <Button kind="primary" isBusy={isBusy} isDisabled={!maySave} onClick={() => save(saved)}>
              Save
            </Button>
            <Button isDisabled={isBusy} onClick={format}>
              Format
            </Button>
          </div>
        )}
      </section>
      <CheckPanel name={name} text={text} />
    </div>
  )
}

/** Of the text as it is, or why they are not known. */
function Faults({ check: { error, faults, retry, warnings } }: { readonly check: PolicyFaults }) {
  return (
    <>
      <div id="policy-faults" class="policy-lines" role="status">
        {faults.map((fault) => (
          <p key={placeOf(fault) + fault.text} class="error">
            {placeOf(fault)}: {fault.text}
          </p>
        ))}
        {warnings.map((warning) => (
          <p key={placeOf(warning) + warning.text} class="muted">
            Warning: {placeOf(warning)}: {warning.text}
          </p>
        ))}
      </div>
      {error && (
        <div class="form-actions" role="alert">
          <span class="error">The document was not checked: {error.message}</span>
          <Button onClick={retry}>Retry</Button>
        </div>
      )}
    </>
  )
}

function Facts({ mayWrite, saved }: Pick<PolicyEditorProps, 'saved' | 'mayWrite'>) {
  if (!saved) return <p class="muted">A new policy. It is saved with the button below.</p>
  return (
    <p class="muted">
      Version {saved.version}
      {saved.modified !== undefined && (
        <>
          , changed <Time at={saved.modified} />
        </>
      )}
      {saved.expiration !== undefined && (
        <>
          , expires <Time at={saved.expiration} />
        </>
      )}
      {!mayWrite && '. Your token may not change it'}
    </p>
  )
}
