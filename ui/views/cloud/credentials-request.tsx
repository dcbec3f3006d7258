import { useEffect, useRef, useState } from 'preact/hooks'
import { Button } from '../../components/button.tsx'
import { Field } from '../../components/field.tsx'
import { ErrorText } from '../../components/states.tsx'
import { useAction } from '../../components/core-parts.tsx'
import { type CloudRole, type CredsDraft, type IssuedCredentials, requestCredentials, revokeLease } from './cloud.ts'
import { IssuedCredentialsCard } from './issued-credentials.tsx'

const EMPTY: CredsDraft = { ttl: '', roleArn: '', sessionName: '', mfaCode: '' }

interface CredentialsRequestProps {
  readonly path: string
  readonly name: string
  /** Undefined if the token may not read it. */
  readonly role: CloudRole | undefined
}

export function CredentialsRequest({ name, path, role }: CredentialsRequestProps) {
  const [draft, setDraft] = useState(EMPTY)
  const [issued, setIssued] = useState<IssuedCredentials>()
  const { error, isBusy, run } = useAction()
  const isLeft = useRef(false)
  useEffect(() => () => void (isLeft.current = true), [])
  const change = (changes: Partial<CredsDraft>) => setDraft((before) => ({ ...before, ...changes }))
  const submit = (event: Event) => {
    event.preventDefault()
    run(async () => {
      const answer = await requestCredentials(path, draft)
      // The user never sees these credentials.
      if (isLeft.current) await revokeUnused(answer)
      else setIssued(answer)
      change({ mfaCode: '' })
    })
  }
  if (issued) return <IssuedCredentialsCard issued={issued} role={name} clear={() => setIssued(undefined)} />
  const isUser = role?.credential_type === 'iam_user'
  return (
    <section class="card">
      <h2>Request credentials</h2>
      <form class="form" onSubmit={submit}>
        {isUser ? (
          <p class="hint">This role creates an IAM user. It is deleted when the lease expires or is revoked.</p>
        ) : (
          <SessionFields draft={draft} change={change} role={role} />
        )}
        {isBusy && (
          <p class="hint" role="status">
            AWS accepts a new key after some seconds…
          </p>
        )}
        {error && <ErrorText error={error} />}
        <div class="form-actions">
          <Button type="submit" kind="primary" isBusy={isBusy}>
            Request credentials
          </Button>
        </div>
      </form>
    </section>
  )
}

async function revokeUnused({ leaseId }: IssuedCredentials): Promise<void> {
  if (leaseId !== '') await revokeLease(leaseId).catch(() => undefined)
}

interface SessionFieldsProps {
  readonly draft: CredsDraft
  readonly change: (changes: Partial<CredsDraft>) => void
  readonly role: CloudRole | undefined
}

/** Parameters of a session; a role that may not be read shows all. */
function SessionFields({ change, draft, role }: SessionFieldsProps) {
  const arns = role?.role_arns ?? []
  const isAssumed = role === undefined || role.credential_type === 'assumed_role'
  return (
    <>
      <Field
        label="TTL"
        hint="For example 15m or 1h. Empty: the default of the role"
        value={draft.ttl}
        onInput={(ttl) => change({ ttl })}
      />
      {isAssumed && arns.length !== 1 && (
        <Field
          label="ARN of the role to assume"
          hint={arns.length > 1 ? `One of ${arns.join(', ')}` : 'Required if the role has several'}
          value={draft.roleArn}
          onInput={(roleArn) => change({ roleArn })}
        />
      )}
      {isAssumed && (
        <Field
          label="Session name"
          hint="For CloudTrail. Empty: a generated name"
          value={draft.sessionName}
          onInput={(sessionName) => change({ sessionName })}
        />
      )}
      {role !== undefined && role.mfa_serial_number !== '' && (
        <Field
          label="Code of the MFA device"
          inputMode="numeric"
          autoComplete="one-time-code"
          value={draft.mfaCode}
          onInput={(mfaCode) => change({ mfaCode })}
        />
      )}
    </>
  )
}
