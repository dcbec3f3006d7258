import { useEffect, useState } from 'preact/hooks'
import { useCapabilities } from '../../api/capabilities.ts'
import { pathOf } from '../../app/location.ts'
import { showSuccess } from '../../app/toasts.tsx'
import { Button } from '../../components/button.tsx'
import { formatSeconds, Time } from '../../components/format.tsx'
import { Link } from '../../components/link.tsx'
import { copySecret, SECRET_SHOWN_MS } from '../../components/secret-value.tsx'
import { ErrorText } from '../../components/states.tsx'
import { Facts, useAction } from '../../components/core-parts.tsx'
import { type IssuedCredentials, revokeLease } from './cloud.ts'
import { CREDENTIAL_FORMATS, type CredentialFormat, formatCredentials } from './credential-formats.ts'

const REVOKE = 'sys/leases/revoke'
const FORMATS = Object.keys(CREDENTIAL_FORMATS) as CredentialFormat[]

interface IssuedCredentialsCardProps {
  readonly issued: IssuedCredentials
  readonly role: string
  /** Forgets the credentials. */
  readonly clear: () => void
}

/** Credentials as text to paste: hidden until the user asks, and cleared when the view is left. */
export function IssuedCredentialsCard({ clear, issued, role }: IssuedCredentialsCardProps) {
  const { credentials, leaseId, leaseSeconds, warnings } = issued
  const may = useCapabilities(leaseId === '' ? [] : [REVOKE])
  const [format, setFormat] = useState<CredentialFormat>('shell')
  const [isShown, setShown] = useState(false)
  const { error, isBusy, run } = useAction()
  useEffect(() => {
    if (!isShown) return undefined
    const timer = setTimeout(() => setShown(false), SECRET_SHOWN_MS)
    return () => clearTimeout(timer)
  }, [isShown])
  const text = () => formatCredentials(format, credentials, role)
  const revoke = () =>
    run(async () => {
      await revokeLease(leaseId)
      showSuccess('Revoked the credentials.')
      clear()
    })
  return (
    <section class="card" aria-label="Credentials">
      <h2>Credentials</h2>
      <Facts
        rows={[
          ['Access key ID', <code key="id">{credentials.accessKeyId}</code>],
          credentials.expiration !== '' && ['Expires', <Time key="expires" at={credentials.expiration} />],
          leaseId !== '' && ['Lease ID', <LeaseLink key="lease" id={leaseId} />],
          leaseId !== '' && ['TTL of the lease', formatSeconds(leaseSeconds)],
        ]}
      />
      {warnings.map((warning) => (
        <p key={warning} class="notice notice-warning">
          {warning}
        </p>
      ))}
      <div class="form-actions" role="group" aria-label="Format">
        {FORMATS.map((each) => (
          <Button key={each} pressed={each === format} onClick={() => setFormat(each)}>
            {CREDENTIAL_FORMATS[each]}
          </Button>
        ))}
      </div>
      <pre class="credentials" tabIndex={0} aria-label="Text to paste">
        {isShown ? text() : '••••••••'}
      </pre>
      {error && <ErrorText error={error} />}
      <div class="form-actions">
        <Button onClick={() => setShown(!isShown)}>{isShown ? 'Hide' : 'Show'}</Button>
        <Button onClick={() => void copySecret(text())}>Copy</Button>
        <Button onClick={clear}>Clear</Button>
        {leaseId !== '' && may(REVOKE, 'update') && (
          <Button kind="danger" isBusy={isBusy} onClick={revoke}>
            Revoke now
          </Button>
        )}
      </div>
      {leaseId !== '' && <p class="hint">Cleared credentials stay valid until their lease expires or is revoked.</p>}
    </section>
  )
}

function LeaseLink({ id }: { readonly id: string }) {
  const prefix = id.split('/').slice(0, -1)
  return (
    <Link to={`${pathOf('access', 'leases', ...prefix)}?lease=${encodeURIComponent(id)}`}>
      <code>{id}</code>
    </Link>
  )
}
