import { useState } from 'preact/hooks'
import { useCapabilities } from '../../api/capabilities.ts'
import { useKeys } from '../../app/keys.ts'
import { address, pathOf, setQuery } from '../../app/location.ts'
import { useCommands } from '../../app/palette.tsx'
import { useResource } from '../../app/resource.ts'
import { token } from '../../app/session.ts'
import { Button } from '../../components/button.tsx'
import { type Column, DataTable } from '../../components/data-table.tsx'
import { Field } from '../../components/field.tsx'
import { Empty, LoginNeeded } from '../../components/states.tsx'
import { View } from '../../components/view.tsx'
import { matchesText } from '../access/identity/identities.ts'
import { CoreLoaded } from '../../components/core-parts.tsx'
import { KeyCreation } from './key-creation.tsx'
import { type KeyRow, listKeys } from './totp.ts'
import { TotpTabs } from './totp-tabs.tsx'

const COLUMNS: readonly Column<KeyRow>[] = [
  { title: 'Key', cell: ({ name }) => name, order: ({ name }) => name },
  { title: 'Mount', width: 'minmax(80px, 200px)', cell: ({ mount }) => mount, order: ({ mount }) => mount },
]

export function KeyTable() {
  const resource = useResource(listKeys, [])
  const [isCreating, setCreating] = useState(false)
  const mounts = resource.data?.mounts ?? []
  const may = useCapabilities(mounts.map((mount) => `${mount}/keys/new`))
  // The engine knows no difference between a new key and an existing one.
  const writable = mounts.filter((mount) => may(`${mount}/keys/new`, 'update'))
  const create = () => setCreating(true)
  const filter = address.value.query.get('filter') ?? ''
  const rows = resource.data?.rows ?? []
  const shown = rows.filter(({ mount, name }) => matchesText(filter, [name, mount]))
  useKeys('TOTP', [
    ...(writable.length > 0 ? [{ keys: 'n', label: 'Create a key', run: create }] : []),
    { keys: 'r', label: 'Reload', run: resource.reload },
  ])
  useCommands(writable.length > 0 ? [{ title: 'Create a key', group: 'TOTP', run: create }] : [], [writable.length])
  return (
    <View
      title="TOTP"
      isFull
      actions={
        writable.length > 0 && (
          <Button kind="primary" onClick={create}>
            Create key
          </Button>
        )
      }
    >
      <TotpTabs current="keys" />
      <div class="bar">
        <Field
          label="Filter keys"
          isLabelHidden
          isSearch
          placeholder="Filter by name"
          value={filter}
          onInput={(text) => setQuery({ filter: text })}
        />
      </div>
      <CoreLoaded resource={resource}>
        {({ hidden }) => (
          <>
            {hidden.length > 0 && <p class="notice">Your token may not list the keys of {hidden.join(', ')}.</p>}
            {shown.length > 0 ? (
              <DataTable
                label="Keys"
                rows={shown}
                columns={COLUMNS}
                linkOf={({ mount, name }) => pathOf('totp', 'keys', mount, name)}
              />
            ) : (
              <NoKeys hasMounts={mounts.length > 0} isFiltered={rows.length > 0} />
            )}
          </>
        )}
      </CoreLoaded>
      {isCreating && <KeyCreation mounts={writable} close={() => setCreating(false)} created={resource.reload} />}
    </View>
  )
}

function NoKeys({ hasMounts, isFiltered }: { readonly hasMounts: boolean; readonly isFiltered: boolean }) {
  if (isFiltered) return <Empty title="No key matches the filter" />
  if (hasMounts) {
    return (
      <Empty title="No keys">
        <p>Import a key to generate its codes here, or generate one to verify the codes of an authenticator.</p>
      </Empty>
    )
  }
  if (token.value === undefined) return <LoginNeeded what="TOTP keys" />
  return (
    <Empty title="No TOTP engine that your token can use">
      <p>
        An administrator enables one with: <code>outpost secrets enable totp</code>
      </p>
    </Empty>
  )
}
