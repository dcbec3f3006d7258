import { useKeys } from '../../../app/keys.ts'
import { pathOf } from '../../../app/location.ts'
import { useResource } from '../../../app/resource.ts'
import { type Column, DataTable } from '../../../components/data-table.tsx'
import { Empty } from '../../../components/states.tsx'
import { View } from '../../../components/view.tsx'
import { AccessTabs } from '../access-tabs.tsx'
import { type AuthMount, readAuthMounts } from './auth-mounts.ts'
import { CoreLoaded, isNarrow } from '../../../components/core-parts.tsx'
import { trimSlashes } from '../../../app/path-segments.ts'

const PATH: Column<AuthMount> = { title: 'Path', cell: ({ path }) => path, order: ({ path }) => path }
const TYPE: Column<AuthMount> = { title: 'Type', width: '110px', cell: ({ type }) => type, order: ({ type }) => type }
const COLUMNS: readonly Column<AuthMount>[] = [
  PATH,
  TYPE,
  { title: 'Description', cell: ({ description }) => description },
  { title: 'Accessor', width: '220px', cell: ({ accessor }) => <code>{accessor}</code> },
]

export function AuthMethodList() {
  const resource = useResource(readAuthMounts, [])
  useKeys('Auth methods', [{ keys: 'r', label: 'Reload', run: resource.reload }])
  return (
    <View title="Access" isFull>
      <AccessTabs />
      <CoreLoaded resource={resource}>
        {(mounts) =>
          mounts.length === 0 ? (
            <Empty title="No auth method that your token can use">
              <p>Listing all auth methods requires “read” on sys/auth.</p>
            </Empty>
          ) : (
            <DataTable
              label="Auth methods"
              rows={mounts}
              columns={isNarrow.value ? [PATH, TYPE] : COLUMNS}
              linkOf={({ path, type }) =>
                type === 'token' ? '/access/tokens' : pathOf('access', 'auth', trimSlashes(path))
              }
            />
          )
        }
      </CoreLoaded>
    </View>
  )
}
