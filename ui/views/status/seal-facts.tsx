/** State of the secrets core behind the page. */
import type { SealStatus } from '../../app/session.ts'
import { Badge } from '../../components/format.tsx'
import { Link } from '../../components/link.tsx'
import { visibleText } from '../../app/invisible-characters.ts'

type Details = SealStatus & {
  readonly outpost_version?: string
  readonly storage_type?: string
  readonly recovery_seal?: boolean
  readonly migration?: boolean
  readonly warnings?: readonly string[]
}

function stateOf({ initialized, sealed }: SealStatus): string {
  if (!initialized) return 'not initialized'
  return sealed ? 'sealed' : 'unsealed'
}

export function SealFacts({ seal }: { readonly seal: Details }) {
  const facts: readonly (readonly [string, string | undefined])[] = [
    ['Seal type', seal.type],
    [seal.recovery_seal ? 'Recovery shares' : 'Key shares', `${seal.n}, ${seal.t} needed`],
    ['Unseal progress', seal.sealed && seal.progress > 0 ? `${seal.progress} of ${seal.t}` : undefined],
    ['Version', seal.outpost_version],
    ['Storage', seal.storage_type],
    ['Cluster', seal.cluster_name],
    ['Cluster ID', seal.cluster_id],
  ]
  return (
    <section class="section">
      <h2>Secrets core</h2>
      <div class="card">
        <p class="host-status">
          <Badge state={stateOf(seal)} />
          {(seal.sealed || !seal.initialized) && (
            <Link to="/seal">{seal.initialized ? 'Unseal it' : 'Initialize it'}</Link>
          )}
          {seal.migration && <span>A migration of the seal is in progress.</span>}
        </p>
        {seal.warnings?.map((warning) => (
          <p key={warning} class="banner banner-warning">
            {visibleText(warning)}
          </p>
        ))}
        <dl class="facts facts-columns">
          {facts.map(([name, value]) =>
            value === undefined || value === '' ? null : (
              <div key={name}>
                <dt>{name}</dt>
                <dd>{visibleText(value)}</dd>
              </div>
            ),
          )}
        </dl>
      </div>
    </section>
  )
}
