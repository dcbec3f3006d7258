import { listSecrets } from '../../api/client.ts'
import { useKeys } from '../../app/keys.ts'
import { address, navigate, pathOf, setQuery } from '../../app/location.ts'
import { useResource } from '../../app/resource.ts'
import { type Column, DataTable } from '../../components/data-table.tsx'
import { Field } from '../../components/field.tsx'
import { Empty } from '../../components/states.tsx'
import { View } from '../../components/view.tsx'
import { matchesText } from '../access/identity/identities.ts'
import { LookUp } from '../access/look-up.tsx'
import { CoreLoaded, isNarrow } from '../../components/core-parts.tsx'
import { mapLimited } from '../../api/map-limited.ts'
import { type CloudRole, readData, type StaticRole } from './cloud.ts'
import { CloudTabs } from './cloud-tabs.tsx'

interface RoleRow {
  readonly name: string
  /** Undefined if the token may not read the role. */
  readonly about: Partial<CloudRole & StaticRole> | undefined
}

const READS = 6
/** Roles whose definition is read for the list. */
const READ_MAX = 200

async function listRoles(folder: string, signal: AbortSignal): Promise<readonly RoleRow[]> {
  const names = await listSecrets(folder, { signal })
  const known = await mapLimited(names.slice(0, READ_MAX), READS, (name) =>
    readData<RoleRow['about']>(`${folder}/${name}`, signal).catch(() => undefined),
  )
  return names.map((name, index) => ({ name, about: known[index] }))
}

const NAME: Column<RoleRow> = { title: 'Role', cell: ({ name }) => name, order: ({ name }) => name }
const TYPE: Column<RoleRow> = {
  title: 'Credential type',
  width: '150px',
  cell: ({ about }) => about?.credential_type ?? '',
  order: ({ about }) => about?.credential_type ?? '',
}
const TARGET: Column<RoleRow> = {
  title: 'Assumes or attaches',
  cell: ({ about }) => [...(about?.role_arns ?? []), ...(about?.policy_arns ?? [])].join(', '),
}
const USER: Column<RoleRow> = { title: 'IAM user', cell: ({ about }) => about?.username ?? '' }
const COLUMNS = { roles: [NAME, TYPE, TARGET], 'static-roles': [NAME, USER] } as const
const NARROW_COLUMNS = { roles: [NAME, TYPE], 'static-roles': [NAME, USER] } as const
const CREATE = {
  roles: 'roles/NAME credential_type=iam_user policy_document=@policy.json',
  'static-roles': 'static-roles/NAME username=USER rotation_period=24h',
}

interface RoleListProps {
  readonly mount: string
  readonly folder: keyof typeof COLUMNS
}

export function RoleList({ folder, mount }: RoleListProps) {
  const path = `${mount}/${folder}`
  const resource = useResource((signal) => listRoles(path, signal), [path])
  const filter = address.value.query.get('filter') ?? ''
  const rows = resource.data ?? []
  const shown = rows.filter(({ about, name }) => matchesText(filter, [name, about?.username ?? '']))
  useKeys('Roles', [{ keys: 'r', label: 'Reload', run: resource.reload }])
  return (
    <View title={`Cloud: ${mount}`} isFull>
      <CloudTabs mount={mount} current={folder} />
      <div class="bar">
        <Field
          label="Filter roles"
          isLabelHidden
          isSearch
          placeholder="Filter by name"
          value={filter}
          onInput={(text) => setQuery({ filter: text })}
        />
        <LookUp label="Role" action="Open" open={(name) => navigate(pathOf('cloud', mount, folder, name))} />
      </div>
      <CoreLoaded resource={resource} hint={`This list requires “list” on ${path}. Open a role by its name.`}>
        {() =>
          shown.length === 0 ? (
            <Empty title={rows.length === 0 ? 'No roles' : 'No role matches the filter'}>
              {rows.length === 0 && (
                <p>
                  Create one with:{' '}
                  <code>
                    outpost write {mount}/{CREATE[folder]}
                  </code>
                </p>
              )}
            </Empty>
          ) : (
            <DataTable
              label={folder === 'roles' ? 'Roles' : 'Static roles'}
              rows={shown}
              columns={(isNarrow.value ? NARROW_COLUMNS : COLUMNS)[folder]}
              linkOf={({ name }) => pathOf('cloud', mount, folder, name)}
            />
          )
        }
      </CoreLoaded>
    </View>
  )
}
