import { useState } from 'preact/hooks'
import { useCapabilities } from '../../../api/capabilities.ts'
import { secrets } from '../../../api/client.ts'
import { useResource } from '../../../app/resource.ts'
import { showSuccess } from '../../../app/toasts.tsx'
import { Button } from '../../../components/button.tsx'
import { Dialog } from '../../../components/dialog.tsx'
import { Field } from '../../../components/field.tsx'
import { formatSeconds, Time } from '../../../components/format.tsx'
import { ErrorText } from '../../../components/states.tsx'
import { CoreLoaded, Facts, useAction } from '../../../components/core-parts.tsx'

export interface Lease {
  readonly id: string
  readonly issue_time: string
  readonly expire_time: string | null
  readonly last_renewal: string | null
  readonly renewable: boolean
  readonly ttl: number
}

export async function lookUpLease(id: string, signal?: AbortSignal): Promise<Lease> {
  const options = { method: 'POST', body: { lease_id: id }, signal }
  return (await secrets<Lease>('sys/leases/lookup', options)).data
}

const RENEW = 'sys/leases/renew'
const REVOKE = 'sys/leases/revoke'

interface LeaseDialogProps {
  readonly id: string
  readonly close: () => void
  /** After the lease was revoked. */
  readonly changed: () => void
}

export function LeaseDialog({ changed, close, id }: LeaseDialogProps) {
  const may = useCapabilities([RENEW, REVOKE])
  const resource = useResource((signal) => lookUpLease(id, signal), [id])
  const [increment, setIncrement] = useState('')
  const [isAsking, setAsking] = useState(false)
  const { error, isBusy, run } = useAction()
  const lease = resource.data
  const renew = (event: Event) => {
    event.preventDefault()
    run(async () => {
      const body = { lease_id: id, ...(increment !== '' && { increment }) }
      const answer = await secrets<unknown>(RENEW, { method: 'POST', body })
      showSuccess(`Renewed the lease: TTL ${formatSeconds(answer.lease_duration)}.`)
      resource.reload()
    })
  }
  const revoke = () =>
    run(async () => {
      await secrets(REVOKE, { method: 'POST', body: { lease_id: id, sync: true } })
      showSuccess('Revoked the lease.')
      changed()
    })
  return (
    <Dialog title="Lease" close={close}>
      <div class="form">
        <CoreLoaded resource={resource} hint="Looking up a lease requires “update” on sys/leases/lookup.">
          {(data) => (
            <Facts
              rows={[
                ['Lease ID', <code key="id">{data.id}</code>],
                ['Issued', <Time key="issued" at={data.issue_time} />],
                ['Last renewed', data.last_renewal === null ? 'never' : <Time key="renewed" at={data.last_renewal} />],
                [
                  'Expires',
                  data.expire_time === null ? (
                    'never'
                  ) : (
                    <span key="expires">
                      <Time at={data.expire_time} /> (TTL {formatSeconds(data.ttl)})
                    </span>
                  ),
                ],
                ['Renewable', data.renewable ? 'yes' : 'no'],
              ]}
            />
          )}
        </CoreLoaded>
        {lease?.renewable && may(RENEW, 'update') && (
          <form class="look-up" onSubmit={renew}>
            <Field label="Requested TTL" placeholder="Default of the lease" value={increment} onInput={setIncrement} />
            <Button type="submit" isBusy={isBusy}>
              Renew
            </Button>
          </form>
        )}
        {error && <ErrorText error={error} />}
        {lease && may(REVOKE, 'update') && (
          <div class="form-actions">
            {isAsking ? (
              <>
                <p class="notice">The credentials of this lease become invalid at once.</p>
                <Button kind="danger" isBusy={isBusy} onClick={revoke}>
                  Revoke now
                </Button>
                <Button onClick={() => setAsking(false)}>Cancel</Button>
              </>
            ) : (
              <Button kind="danger" onClick={() => setAsking(true)}>
                Revoke
              </Button>
            )}
          </div>
        )}
      </div>
    </Dialog>
  )
}
