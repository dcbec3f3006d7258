import { useKeys } from '../../../app/keys.ts'
import { address, pathOf, setQuery } from '../../../app/location.ts'
import { useResource } from '../../../app/resource.ts'
import { type Column, DataTable } from '../../../components/data-table.tsx'
import { Field } from '../../../components/field.tsx'
import { Empty } from '../../../components/states.tsx'
import { Tabs } from '../../../components/tabs.tsx'
import { View } from '../../../components/view.tsx'
import { AccessTabs } from '../access-tabs.tsx'
import { type EntityRow, type GroupRow, listEntities, listGroups, matchesText } from './identities.ts'
import { CoreLoaded, isNarrow } from '../../../components/core-parts.tsx'

const ENTITY_NAME: Column<EntityRow> = { title: 'Name', cell: ({ name }) => name, order: ({ name }) => name }
const ALIASES: Column<EntityRow> = {
  title: 'Aliases',
  cell: ({ aliases }) => aliases.map(({ mount_path, name }) => `${name} (${mount_path})`).join(', '),
}
const ENTITY_COLUMNS: readonly Column<EntityRow>[] = [
  ENTITY_NAME,
  ALIASES,
  { title: 'ID', width: '310px', cell: ({ id }) => <code>{id}</code> },
]

export function EntityList() {
  return (
    <IdentityList
      kind="entities"
      load={listEntities}
      textsOf={({ aliases, id, name }) => [id, name, ...aliases.map((alias) => alias.name)]}
      columns={isNarrow.value ? [ENTITY_NAME, ALIASES] : ENTITY_COLUMNS}
      empty="An entity is created at the first login of a user or a program."
    />
  )
}

const GROUP_NAME: Column<GroupRow> = { title: 'Name', cell: ({ name }) => name, order: ({ name }) => name }
const MEMBERS: Column<GroupRow> = {
  title: 'Entities',
  width: '90px',
  isNumber: true,
  cell: ({ members }) => members,
  order: ({ members }) => members,
}
const GROUP_COLUMNS: readonly Column<GroupRow>[] = [
  GROUP_NAME,
  { title: 'Policies', cell: ({ policies }) => policies.join(', ') },
  MEMBERS,
]

export function GroupList() {
  return (
    <IdentityList
      kind="groups"
      load={listGroups}
      textsOf={({ id, name, policies }) => [id, name, ...policies]}
      columns={isNarrow.value ? [GROUP_NAME, MEMBERS] : GROUP_COLUMNS}
      empty="Create one with: outpost group write NAME policies=POLICY member_entity_ids=ID"
    />
  )
}

interface IdentityListProps<Row> {
  readonly kind: 'entities' | 'groups'
  readonly load: (signal: AbortSignal) => Promise<readonly Row[]>
  readonly textsOf: (row: Row) => readonly string[]
  readonly columns: readonly Column<Row>[]
  readonly empty: string
}

function IdentityList<Row extends { readonly id: string }>(props: IdentityListProps<Row>) {
  const { columns, empty, kind, load, textsOf } = props
  const resource = useResource(load, [kind])
  const filter = address.value.query.get('filter') ?? ''
  const rows = resource.data ?? []
  const shown = rows.filter((row) => matchesText(filter, textsOf(row)))
  useKeys('Identity', [{ keys: 'r', label: 'Reload', run: resource.reload }])
  return (
    <View title="Access" isFull>
      <AccessTabs />
      <Tabs
        label="Identity"
        tabs={[
          { title: 'Entities', to: '/access/identity', isCurrent: kind === 'entities' },
          { title: 'Groups', to: '/access/identity/groups', isCurrent: kind === 'groups' },
        ]}
      />
      <div class="bar">
        <Field
          label={`Filter ${kind}`}
          isLabelHidden
          isSearch
          placeholder="Filter by name or ID"
          value={filter}
          onInput={(text) => setQuery({ filter: text })}
        />
      </div>
      <CoreLoaded
        resource={resource}
        hint={`This list requires “list” on identity/${kind === 'groups' ? 'group' : 'entity'}/id.`}
      >
        {() =>
          shown.length === 0 ? (
            <Empty title={rows.length === 0 ? `No ${kind}` : 'Nothing matches the filter'}>
              {rows.length === 0 && <p>{empty}</p>}
            </Empty>
          ) : (
            <DataTable
              label={kind === 'groups' ? 'Groups' : 'Entities'}
              rows={shown}
              columns={columns}
              linkOf={({ id }) => pathOf('access', 'identity', kind, id)}
            />
          )
        }
      </CoreLoaded>
    </View>
  )
}
