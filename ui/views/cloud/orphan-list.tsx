import { useState } from 'preact/hooks'
import { useCapabilities } from '../../api/capabilities.ts'
import { secrets } from '../../api/client.ts'
import { showSuccess } from '../../app/toasts.tsx'
import { Button } from '../../components/button.tsx'
import { Confirm } from '../../components/dialog.tsx'
import { Time } from '../../components/format.tsx'
import { Empty } from '../../components/states.tsx'
import { View } from '../../components/view.tsx'
import { CoreFailure, useAction } from '../../components/core-parts.tsx'
import { type Orphans, readData } from './cloud.ts'
import { CloudTabs } from './cloud-tabs.tsx'

interface Removal {
  readonly removed: readonly string[]
  readonly failed: Readonly<Record<string, string>>
}

/** AWS users of the mount that no lease owns. The search asks AWS, so it runs when the user wants it. */
export function OrphanList({ mount }: { readonly mount: string }) {
  const path = `${mount}/orphans`
  const may = useCapabilities([path])
  const [found, setFound] = useState<Orphans>()
  const [removal, setRemoval] = useState<Removal>()
  const [isAsking, setAsking] = useState(false)
  const { error, isBusy, run } = useAction()
  const orphans = found?.orphans ?? []
  const search = () => run(async () => setFound(await readData<Orphans>(path)))
  const remove = async () => {
    const usernames = orphans.map(({ username }) => username)
    const { data } = await secrets<Removal>(path, { method: 'POST', body: { remove: true, usernames } })
    setRemoval(data)
    setFound(await readData<Orphans>(path))
    if (Object.keys(data.failed).length === 0) showSuccess(`Deleted ${data.removed.length} AWS users.`)
  }
  return (
    <View
      title={`Cloud: ${mount}`}
      actions={
        orphans.length > 0 &&
        may(path, 'update') && (
          <Button kind="danger" onClick={() => setAsking(true)}>
            Delete these users
          </Button>
        )
      }
    >
      <CloudTabs mount={mount} current="orphans" />
      <p>
        AWS users that this engine created and that no lease owns, for example after leases were removed by force or an
        older snapshot was restored.
      </p>
      {may(path, 'read') ? (
        <div class="form-actions">
          <Button kind="primary" isBusy={isBusy} onClick={search}>
            Search
          </Button>
        </div>
      ) : (
        may.isKnown && <p class="notice">The search requires “read” on {path}.</p>
      )}
      {error && <CoreFailure error={error} />}
      {Object.entries(removal?.failed ?? {}).map(([user, reason]) => (
        <p key={user} class="notice notice-bad" role="alert">
          Cannot delete {user}: {reason}
        </p>
      ))}
      {found && <Found found={found} />}
      {isAsking && (
        <Confirm
          title="Delete AWS users"
          action="Delete"
          typed={String(orphans.length)}
          run={remove}
          close={() => setAsking(false)}
        >
          <p>These {orphans.length} users are deleted in AWS with their keys and policies:</p>
          <ul class="rows scrolled">
            {orphans.map(({ username }) => (
              <li key={username}>
                <code>{username}</code>
              </li>
            ))}
          </ul>
          <p class="hint">The server searches again before it deletes: a user with a lease is not deleted.</p>
        </Confirm>
      )}
    </View>
  )
}

function Found({ found: { elsewhere = [], orphans } }: { readonly found: Orphans }) {
  return (
    <>
      {orphans.length === 0 ? (
        <Empty title="No users without a lease" />
      ) : (
        <section class="card">
          <ul class="rows" aria-label="Users without a lease">
            {orphans.map(({ created_time, username }) => (
              <li key={username}>
                <code>{username}</code>
                <span class="muted">
                  created <Time at={created_time} />
                </span>
              </li>
            ))}
          </ul>
        </section>
      )}
      {elsewhere.map(({ account, username }) => (
        <p key={`${account} ${username}`} class="notice notice-warning">
          The user {username} of account {account} was not completed: it needs the credentials of that account.
        </p>
      ))}
    </>
  )
}
