import { useState } from 'preact/hooks'
import { useCapabilities } from '../../../api/capabilities.ts'
import { useKeys } from '../../../app/keys.ts'
import { address, pathOf, setQuery } from '../../../app/location.ts'
import { useResource } from '../../../app/resource.ts'
import { Button } from '../../../components/button.tsx'
import { type Column, DataTable } from '../../../components/data-table.tsx'
import { Field } from '../../../components/field.tsx'
import { Empty } from '../../../components/states.tsx'
import { View } from '../../../components/view.tsx'
import { AccessTabs } from '../access-tabs.tsx'
import { listMembers, type MemberKind, memberKind, memberRows, readAuthMounts, readMember } from './auth-mounts.ts'
import { matchesText } from '../identity/identities.ts'
import { CoreLoaded, Facts } from '../../../components/core-parts.tsx'
import { RoleCreation } from './role-creation.tsx'
import { UserCreation } from './user-creation.tsx'

const PARENTS = [
  { title: 'Access', to: '/access' },
  { title: 'Auth methods', to: '/access/auth' },
]
const COLUMNS: readonly Column<string>[] = [{ title: 'Name', cell: (name) => name, order: (name) => name }]

interface AuthMethodViewProps {
  /** Path of the mount without slashes at its ends. */
  readonly mount: string
  readonly name: string | undefined
}

/** The users or roles of an auth method, or one of them. */
export function AuthMethodView({ mount, name }: AuthMethodViewProps) {
  const mounts = useResource(readAuthMounts, [])
  return (
    <CoreLoaded resource={mounts}>
      {(all) => {
        const type = all.find(({ path }) => path === `${mount}/`)?.type
        const kind = memberKind(type ?? '')
        if (kind && name !== undefined) return <MemberView mount={mount} kind={kind} name={name} />
        if (kind) return <MemberList mount={mount} kind={kind} />
        return (
          <View title={mount} parents={PARENTS}>
            <Empty title={type === undefined ? 'There is no such auth method' : `No view for the type “${type}”`}>
              <p>
                {type === undefined
                  ? 'It was disabled, or your token may not see it.'
                  : 'Use the command line: outpost auth list'}
              </p>
            </Empty>
          </View>
        )
      }}
    </CoreLoaded>
  )
}

interface MembersProps {
  readonly mount: string
  readonly kind: MemberKind
}

function MemberList({ kind, mount }: MembersProps) {
  const folder = `auth/${mount}/${kind.folder}`
  const example = `${folder}/new`
  const may = useCapabilities([example])
  const resource = useResource((signal) => listMembers(mount, kind, signal), [mount])
  const [isCreating, setCreating] = useState(false)
  const filter = address.value.query.get('filter') ?? ''
  const names = resource.data ?? []
  const shown = names.filter((name) => matchesText(filter, [name]))
  const mayCreate = may(example, 'create')
  const create = () => setCreating(true)
  const Creation = kind.folder === 'users' ? UserCreation : RoleCreation
  useKeys(kind.title, [
    ...(mayCreate ? [{ keys: 'n', label: `Create a ${kind.one}`, run: create }] : []),
    { keys: 'r', label: 'Reload', run: resource.reload },
  ])
  return (
    <View
      title={mount}
      isFull
      parents={PARENTS}
      actions={
        mayCreate && (
          <Button kind="primary" onClick={create} title="n">
            Create {kind.one}
          </Button>
        )
      }
    >
      <AccessTabs />
      <div class="bar">
        <Field
          label={`Filter ${kind.title.toLowerCase()}`}
          isLabelHidden
          isSearch
          placeholder="Filter by name"
          value={filter}
          onInput={(text) => setQuery({ filter: text })}
        />
      </div>
      <CoreLoaded resource={resource} hint={`This list requires “list” on ${folder}.`}>
        {() =>
          shown.length === 0 ? (
            <Empty title={names.length === 0 ? `No ${kind.title.toLowerCase()}` : 'Nothing matches the filter'}>
              {names.length === 0 && (
                <p>
                  Create one with: outpost write {folder}/NAME{' '}
                  {kind.folder === 'users' ? 'password=-' : 'token_policies=POLICY'}
                </p>
              )}
            </Empty>
          ) : (
            <DataTable
              label={kind.title}
              rows={shown}
              columns={COLUMNS}
              linkOf={(name) => pathOf('access', 'auth', mount, name)}
            />
          )
        }
      </CoreLoaded>
      {isCreating && (
        <Creation mount={mount} existing={names} close={() => setCreating(false)} created={resource.reload} />
      )}
    </View>
  )
}

function MemberView({ kind, mount, name }: MembersProps & { readonly name: string }) {
  const resource = useResource((signal) => readMember(mount, kind, name, signal), [mount, name])
  const list = { title: mount, to: pathOf('access', 'auth', mount) }
  return (
    <View title={name} parents={[...PARENTS, list]}>
      <CoreLoaded
        resource={resource}
        hint={`This ${kind.one} requires “read” on auth/${mount}/${kind.folder}/${name}.`}
      >
        {(data) => (
          <section class="card">
            <Facts rows={memberRows(data)} />
          </section>
        )}
      </CoreLoaded>
    </View>
  )
}
