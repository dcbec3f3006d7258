import { useState } from 'preact/hooks'
import { useCapabilities } from '../../api/capabilities.ts'
import { secrets } from '../../api/client.ts'
import { useCommands } from '../../app/palette.tsx'
import { useResource } from '../../app/resource.ts'
import { refreshSession } from '../../app/session.ts'
import { showSuccess } from '../../app/toasts.tsx'
import { Button } from '../../components/button.tsx'
import { Confirm } from '../../components/dialog.tsx'
import { View } from '../../components/view.tsx'
import { CoreLoaded, Facts } from '../../components/core-parts.tsx'
import { UnsealForm } from './unseal-form.tsx'
import { readSeal, type SealReport, sealSummary } from './unsealing.ts'

const POLL_MS = 3000
const SEAL = 'sys/seal'

/** Key shares are sent one by one and are kept nowhere. */
export default function SealView() {
  const resource = useResource(readSeal, [], { everyMs: POLL_MS })
  const may = useCapabilities([SEAL])
  const [isAsking, setAsking] = useState(false)
  const status = resource.data?.status
  const maySeal = status?.sealed === false && may(SEAL, 'update') && may(SEAL, 'sudo')
  useCommands(maySeal ? [{ title: 'Seal the secrets core', group: 'Seal', run: () => setAsking(true) }] : [], [maySeal])
  const changed = async () => {
    resource.reload()
    await refreshSession().catch(() => undefined)
  }
  const seal = async () => {
    await secrets(SEAL, { method: 'POST' })
    showSuccess('Sealed the secrets core.')
    await changed()
  }
  const name = status?.cluster_name ?? 'seal'
  return (
    <View
      title="Seal"
      actions={
        maySeal && (
          <Button kind="danger" onClick={() => setAsking(true)}>
            Seal
          </Button>
        )
      }
    >
      <CoreLoaded resource={resource}>{(data) => <SealState report={data} changed={changed} />}</CoreLoaded>
      {isAsking && (
        <Confirm title="Seal the secrets core" action="Seal" typed={name} run={seal} close={() => setAsking(false)}>
          <p>
            The server forgets the root key. All clients get errors until {status?.t ?? 'enough'} key shares are entered
            again.
          </p>
        </Confirm>
      )}
    </View>
  )
}

interface SealStateProps {
  readonly report: SealReport
  readonly changed: () => Promise<void>
}

function SealState({ changed, report: { role, status } }: SealStateProps) {
  const { kind, text } = sealSummary(status, role)
  return (
    <>
      <p class={`notice notice-${kind} summary`} role="status">
        {text}
      </p>
      {!status.initialized && <Initialization />}
      {status.initialized && status.sealed && <UnsealForm status={status} changed={changed} />}
      {status.initialized && (
        <section class="card">
          <Facts
            rows={[
              ['Seal', status.type],
              status.n > 0 && ['Key shares', `${status.t} of ${status.n} are needed`],
              status.cluster_name !== undefined && ['Cluster', status.cluster_name],
              status.cluster_id !== undefined && ['Cluster ID', <code key="id">{status.cluster_id}</code>],
            ]}
          />
        </section>
      )}
    </>
  )
}

function Initialization() {
  return (
    <section class="card">
      <h2>Initialize</h2>
      <p>
        Initialization creates the key shares and the first root token, and shows them once. It is not offered here,
        because a page and its browser should not see all key shares. Run it on a trusted host, and give each share to a
        different person:
      </p>
      <pre class="credentials" tabIndex={0} aria-label="Command">
        outpost operator init -key-shares=5 -key-threshold=3
      </pre>
      <p>
        With <code>-pgp-keys</code> each share is encrypted for its holder. Afterwards the shares unseal the core, here
        or with <code>outpost operator unseal</code>.
      </p>
    </section>
  )
}
