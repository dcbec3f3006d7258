import { useState } from 'preact/hooks'
import { useCapabilities } from '../../../api/capabilities.ts'
import { listSecrets, secrets } from '../../../api/client.ts'
import { useKeys } from '../../../app/keys.ts'
import { address, navigate, pathOf, setQuery } from '../../../app/location.ts'
import { useResource } from '../../../app/resource.ts'
import { showSuccess } from '../../../app/toasts.tsx'
import { Button } from '../../../components/button.tsx'
import { type Column, DataTable } from '../../../components/data-table.tsx'
import { Confirm } from '../../../components/dialog.tsx'
import { Field } from '../../../components/field.tsx'
import { Empty } from '../../../components/states.tsx'
import { View } from '../../../components/view.tsx'
import { AccessTabs } from '../access-tabs.tsx'
import { IrrevocableLeases } from './irrevocable-leases.tsx'
import { LeaseDialog } from './lease-dialog.tsx'
import { LookUp } from '../look-up.tsx'
import { CoreLoaded } from '../../../components/core-parts.tsx'
import { trimSlashes } from '../../../app/path-segments.ts'

const LOOKUP = 'sys/leases/lookup'

/** Path of the list below a prefix. */
function leasesAt(prefix: string): string {
  return prefix === '' ? '/access/leases' : pathOf('access', 'leases', ...prefix.split('/'))
}

const COLUMNS: readonly Column<string>[] = [
  { title: 'Name', cell: (name) => <code>{name}</code>, order: (name) => name },
  { title: 'Kind', width: '90px', cell: (name) => (name.endsWith('/') ? 'prefix' : 'lease') },
]

/** Leases below a prefix; `?lease=ID` opens one. */
export function LeaseBrowser({ prefix }: { readonly prefix: string }) {
  const revokePrefix = `sys/leases/revoke-prefix/${prefix}`
  const may = useCapabilities([LOOKUP, revokePrefix])
  const resource = useResource(
    (signal) => listSecrets(prefix === '' ? LOOKUP : `${LOOKUP}/${prefix}`, { signal }),
    [prefix],
  )
  const [isRevoking, setRevoking] = useState(false)
  const filter = address.value.query.get('filter') ?? ''
  const open = address.value.query.get('lease') ?? ''
  const parts = prefix === '' ? [] : prefix.split('/')
  const idOf = (name: string) => (prefix === '' ? name : `${prefix}/${name}`)
  const names = resource.data ?? []
  const shown = names.filter((name) => name.toLowerCase().includes(filter.toLowerCase()))
  const mayRevokePrefix = prefix !== '' && names.length > 0 && may(revokePrefix, 'update') && may(revokePrefix, 'sudo')
  const up = () => navigate(leasesAt(parts.slice(0, -1).join('/')))
  const parents = [
    { title: 'Access', to: '/access' },
    { title: 'Leases', to: '/access/leases' },
    ...parts.slice(0, -1).map((title, index) => ({ title, to: leasesAt(parts.slice(0, index + 1).join('/')) })),
  ]
  useKeys('Leases', [
    { keys: 'u', label: 'One level up', run: up },
    { keys: 'r', label: 'Reload', run: resource.reload },
    { keys: 'x', label: 'Revoke all leases of the prefix', run: () => mayRevokePrefix && setRevoking(true) },
  ])
  const revokeAll = async () => {
    await secrets(revokePrefix, { method: 'POST', body: { sync: true } })
    showSuccess(`Revoked all leases below ${prefix}.`)
    up()
  }
  return (
    <View
      title={parts.at(-1) ?? 'Access'}
      isFull
      parents={prefix === '' ? [] : parents}
      actions={
        mayRevokePrefix && (
          <Button kind="danger" onClick={() => setRevoking(true)}>
            Revoke all below this prefix
          </Button>
        )
      }
    >
      <AccessTabs />
      {prefix === '' && <IrrevocableLeases />}
      <div class="bar">
        <Field
          label="Filter leases"
          isLabelHidden
          isSearch
          placeholder="Filter this list"
          value={filter}
          onInput={(text) => setQuery({ filter: text })}
        />
        {may(LOOKUP, 'update') && <LookUp label="Lease ID" open={(lease) => setQuery({ lease })} />}
      </div>
      <CoreLoaded resource={resource} hint="Browsing leases requires “list” and “sudo” on sys/leases/lookup.">
        {() =>
          shown.length === 0 ? (
            <Empty title={names.length === 0 ? 'No leases here' : 'No lease matches the filter'}>
              {names.length === 0 && <p>Dynamic credentials and logins have leases until they expire.</p>}
            </Empty>
          ) : (
            <DataTable
              label="Leases"
              rows={shown}
              columns={COLUMNS}
              linkOf={(name) =>
                name.endsWith('/')
                  ? leasesAt(idOf(trimSlashes(name)))
                  : `${leasesAt(prefix)}?lease=${encodeURIComponent(idOf(name))}`
              }
            />
          )
        }
      </CoreLoaded>
      {open !== '' && (
        <LeaseDialog
          key={open}
          id={open}
          close={() => setQuery({ lease: undefined })}
          changed={() => {
            setQuery({ lease: undefined })
            resource.reload()
          }}
        />
      )}
      {isRevoking && (
        <Confirm
          title="Revoke leases"
          action="Revoke all"
          typed={prefix}
          run={revokeAll}
          close={() => setRevoking(false)}
        >
          <p>
            All leases below <code>{prefix}/</code> are revoked at once, and their credentials become invalid.
            {prefix.startsWith('auth/') && ' These are tokens: their users and programs are logged out.'}
          </p>
        </Confirm>
      )}
    </View>
  )
}
