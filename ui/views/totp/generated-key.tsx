import { SecretValue } from '../../components/secret-value.tsx'
import type { GeneratedKey } from './totp.ts'

/** The QR code of a key, and what to type where it cannot be scanned. */
export function GeneratedKeyCard({ generated }: { readonly generated: GeneratedKey }) {
  const { barcode, secret, url } = generated
  return (
    <>
      {barcode !== undefined && barcode !== '' && (
        <img class="qr-code" src={`data:image/png;base64,${barcode}`} alt="QR code for an authenticator application" />
      )}
      <dl class="facts">
        {secret !== undefined && (
          <>
            <dt>Key</dt>
            <dd>
              <SecretValue name="the key" value={secret} />
            </dd>
          </>
        )}
        {url !== undefined && (
          <>
            <dt>URL</dt>
            <dd>
              <SecretValue name="the URL" value={url} />
            </dd>
          </>
        )}
      </dl>
    </>
  )
}
