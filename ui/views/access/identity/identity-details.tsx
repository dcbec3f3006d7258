import { useState } from 'preact/hooks'
import { useCapabilities } from '../../../api/capabilities.ts'
import { pathOf } from '../../../app/location.ts'
import { useResource } from '../../../app/resource.ts'
import { showSuccess } from '../../../app/toasts.tsx'
import { Button } from '../../../components/button.tsx'
import { Confirm } from '../../../components/dialog.tsx'
import { Time } from '../../../components/format.tsx'
import { Link } from '../../../components/link.tsx'
import { ErrorText } from '../../../components/states.tsx'
import { View } from '../../../components/view.tsx'
import { type Alias, type Entity, type Group, readEntity, readGroup, setEntityDisabled } from './identities.ts'
import { CoreLoaded, Facts, Names, useAction } from '../../../components/core-parts.tsx'

const ACCESS = { title: 'Access', to: '/access' }
const ENTITIES = { title: 'Entities', to: '/access/identity' }
const GROUPS = { title: 'Groups', to: '/access/identity/groups' }

export function EntityView({ id }: { readonly id: string }) {
  const path = `identity/entity/id/${id}`
  const may = useCapabilities([path])
  const resource = useResource((signal) => readEntity(id, signal), [id])
  const [isAsking, setAsking] = useState(false)
  const { error, isBusy, run } = useAction()
  const entity = resource.data
  const change = async (isDisabled: boolean) => {
    await setEntityDisabled(id, isDisabled)
    showSuccess(isDisabled ? 'Disabled the entity.' : 'Enabled the entity.')
    resource.reload()
  }
  return (
    <View
      title={entity?.name ?? 'Entity'}
      parents={[ACCESS, ENTITIES]}
      actions={
        entity &&
        may(path, 'update') &&
        (entity.disabled ? (
          <Button isBusy={isBusy} onClick={() => run(() => change(false))}>
            Enable
          </Button>
        ) : (
          <Button kind="danger" onClick={() => setAsking(true)}>
            Disable
          </Button>
        ))
      }
    >
      {error && <ErrorText error={error} />}
      <CoreLoaded resource={resource} hint={`This entity requires “read” on ${path}.`}>
        {(data) => <EntityFacts entity={data} />}
      </CoreLoaded>
      {isAsking && entity && (
        <Confirm title="Disable the entity" action="Disable" run={() => change(true)} close={() => setAsking(false)}>
          <p>
            The server refuses logins of “{entity.name}” and all its tokens from the next request on. You can enable it
            again.
          </p>
        </Confirm>
      )}
    </View>
  )
}

function EntityFacts({ entity }: { readonly entity: Entity }) {
  return (
    <>
      {entity.disabled && (
        <p class="notice notice-warning">This entity is disabled: its logins and tokens are refused.</p>
      )}
      <section class="card">
        <Facts
          rows={[
            ['ID', <code key="id">{entity.id}</code>],
            ['Policies', <Names key="policies" names={entity.policies} />],
            ['Groups', <Ids key="groups" kind="groups" ids={entity.direct_group_ids} />],
            entity.inherited_group_ids !== null &&
              entity.inherited_group_ids.length > 0 && [
                'Inherited groups',
                <Ids key="inherited" kind="groups" ids={entity.inherited_group_ids} />,
              ],
            metadataRow(entity.metadata),
            ['Created', <Time key="created" at={entity.creation_time} />],
            ['Changed', <Time key="changed" at={entity.last_update_time} />],
          ]}
        />
      </section>
      <section class="card">
        <h2>Aliases</h2>
        {entity.aliases.length === 0 ? (
          <p class="muted">This entity has no alias.</p>
        ) : (
          <Aliases all={entity.aliases} />
        )}
      </section>
    </>
  )
}

function Aliases({ all }: { readonly all: readonly Alias[] }) {
  return (
    <ul class="rows">
      {all.map(({ creation_time, id, mount_path, mount_type, name }) => (
        <li key={id}>
          <strong>{name}</strong>
          <span>
            at <code>{mount_path}</code> ({mount_type})
          </span>
          {creation_time !== undefined && <Time at={creation_time} />}
        </li>
      ))}
    </ul>
  )
}

export function GroupView({ id }: { readonly id: string }) {
  const resource = useResource((signal) => readGroup(id, signal), [id])
  return (
    <View title={resource.data?.name ?? 'Group'} parents={[ACCESS, GROUPS]}>
      <CoreLoaded resource={resource} hint={`This group requires “read” on identity/group/id/${id}.`}>
        {(group) => <GroupFacts group={group} />}
      </CoreLoaded>
    </View>
  )
}

function GroupFacts({ group }: { readonly group: Group }) {
  const { alias } = group
  return (
    <section class="card">
      <Facts
        rows={[
          ['ID', <code key="id">{group.id}</code>],
          ['Type', group.type],
          alias?.name !== undefined && ['Alias', `${alias.name} at ${alias.mount_path ?? ''}`],
          ['Policies', <Names key="policies" names={group.policies} />],
          ['Entities', <Ids key="entities" kind="entities" ids={group.member_entity_ids} />],
          ['Member groups', <Ids key="members" kind="groups" ids={group.member_group_ids} />],
          ['Parent groups', <Ids key="parents" kind="groups" ids={group.parent_group_ids} />],
          metadataRow(group.metadata),
          ['Created', <Time key="created" at={group.creation_time} />],
          ['Changed', <Time key="changed" at={group.last_update_time} />],
        ]}
      />
    </section>
  )
}

function metadataRow(metadata: Readonly<Record<string, string>> | null) {
  const pairs = Object.entries(metadata ?? {})
  return pairs.length > 0 && (['Metadata', pairs.map(([name, value]) => `${name}=${value}`).join(', ')] as const)
}

function Ids({ ids, kind }: { readonly ids: readonly string[] | null; readonly kind: 'entities' | 'groups' }) {
  if (ids === null || ids.length === 0) return <span class="muted">none</span>
  return (
    <ul class="rows">
      {ids.map((id) => (
        <li key={id}>
          <Link to={pathOf('access', 'identity', kind, id)}>{id}</Link>
        </li>
      ))}
    </ul>
  )
}
