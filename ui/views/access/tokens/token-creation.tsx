import { useState } from 'preact/hooks'
import { type AuthResult, listSecrets } from '../../../api/client.ts'
import { useResource } from '../../../app/resource.ts'
import { Button } from '../../../components/button.tsx'
import { Dialog } from '../../../components/dialog.tsx'
import { Field } from '../../../components/field.tsx'
import { formatSeconds } from '../../../components/format.tsx'
import { SecretValue } from '../../../components/secret-value.tsx'
import { ErrorText } from '../../../components/states.tsx'
import { Check } from '../../../components/check.tsx'
import { Facts, Names, useAction } from '../../../components/core-parts.tsx'
import { PolicyField } from '../policy-field.tsx'
import { listOf } from '../../../app/path-segments.ts'
import { createToken, type TokenDraft } from './tokens.ts'

const NEW: TokenDraft = {
  policies: [],
  ttl: '1h',
  displayName: '',
  uses: '',
  type: 'service',
  isOrphan: false,
  hasDefaultPolicy: true,
  isRenewable: true,
}

interface TokenCreationProps {
  readonly mayOrphan: boolean
  readonly close: () => void
  readonly created: () => void
}

/** Creates a token, and shows it once. */
export function TokenCreation({ close, created, mayOrphan }: TokenCreationProps) {
  const [token, setToken] = useState<AuthResult & { readonly warnings: readonly string[] }>()
  const done = () => {
    setToken(undefined)
    close()
    created()
  }
  return (
    <Dialog
      title={token ? 'Token created' : 'Create a token'}
      close={token ? done : close}
      lost={token && 'The token is not shown again.'}
    >
      {token ? (
        <CreatedToken token={token} close={done} />
      ) : (
        <Draft mayOrphan={mayOrphan} use={setToken} close={close} />
      )}
    </Dialog>
  )
}

interface DraftProps {
  readonly mayOrphan: boolean
  readonly use: (token: AuthResult & { readonly warnings: readonly string[] }) => void
  readonly close: () => void
}

function Draft({ close, mayOrphan, use }: DraftProps) {
  const [draft, setDraft] = useState(NEW)
  const [policies, setPolicies] = useState('')
  const { error, isBusy, run } = useAction()
  const known = useResource((signal) => listSecrets('sys/policies/acl', { signal }), [])
  const change = (changes: Partial<TokenDraft>) => setDraft((before) => ({ ...before, ...changes }))
  const submit = (event: Event) => {
    event.preventDefault()
    run(async () => use(await createToken({ ...draft, policies: listOf(policies) })))
  }
  return (
    <form class="form" onSubmit={submit}>
      <PolicyField value={policies} onInput={setPolicies} known={known.data} />
      <Field
        label="TTL"
        hint="For example 30m, 8h or 768h. Empty: the server default"
        value={draft.ttl}
        onInput={(ttl) => change({ ttl })}
      />
      <Field
        label="Display name"
        hint="For lists and logs"
        value={draft.displayName}
        onInput={(displayName) => change({ displayName })}
      />
      <Field
        label="Uses"
        inputMode="numeric"
        hint="The token is revoked after this number of requests. Leave empty for no limit"
        value={draft.uses}
        onInput={(uses) => change({ uses })}
      />
      <fieldset class="choices">
        <legend>Type</legend>
        <Check
          group="type"
          label="Service"
          isChecked={draft.type === 'service'}
          set={() => change({ type: 'service' })}
        />
        <Check
          group="type"
          label="Batch: not stored, cannot be revoked"
          isChecked={draft.type === 'batch'}
          set={() => change({ type: 'batch', isOrphan: false })}
        />
      </fieldset>
      <div>
        <Check
          label="With the policy “default”"
          isChecked={draft.hasDefaultPolicy}
          set={(hasDefaultPolicy) => change({ hasDefaultPolicy })}
        />
        {draft.type === 'service' && (
          <Check label="Renewable" isChecked={draft.isRenewable} set={(isRenewable) => change({ isRenewable })} />
        )}
        {mayOrphan && (
          <Check
            label="Orphan: not revoked with your token"
            isChecked={draft.isOrphan}
            set={(isOrphan) => change({ isOrphan })}
          />
        )}
      </div>
      {error && <ErrorText error={error} />}
      <div class="form-actions">
        <Button type="submit" kind="primary" isBusy={isBusy}>
          Create token
        </Button>
        <Button onClick={close}>Cancel</Button>
      </div>
    </form>
  )
}

interface CreatedTokenProps {
  readonly token: AuthResult & { readonly warnings: readonly string[] }
  readonly close: () => void
}

function CreatedToken({ close, token }: CreatedTokenProps) {
  return (
    <div class="form">
      <p>The token is shown here only. Copy it before you close this dialog.</p>
      <Facts
        rows={[
          ['Token', <SecretValue key="token" name="the token" value={token.client_token} />],
          token.accessor !== '' && ['Accessor', <code key="accessor">{token.accessor}</code>],
          ['Policies', <Names key="policies" names={token.policies} />],
          ['TTL', token.lease_duration === 0 ? 'does not expire' : formatSeconds(token.lease_duration)],
        ]}
      />
      {token.warnings.map((warning) => (
        <p key={warning} class="notice">
          {warning}
        </p>
      ))}
      <div class="form-actions">
        <Button kind="primary" onClick={close}>
          I have saved it
        </Button>
      </div>
    </div>
  )
}
