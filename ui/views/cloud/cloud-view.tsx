import { path, pathOf } from '../../app/location.ts'
import type { ViewProps } from '../../app/view-props.ts'
import { useResource } from '../../app/resource.ts'
import { token } from '../../app/session.ts'
import { DataTable } from '../../components/data-table.tsx'
import { Empty, Failure, LoginNeeded } from '../../components/states.tsx'
import { View } from '../../components/view.tsx'
import { CoreLoaded } from '../../components/core-parts.tsx'
import { readMountsOfView } from '../access/secret-mounts.ts'
import { segmentsOf } from '../../app/path-segments.ts'
import { OrphanList } from './orphan-list.tsx'
import { RoleList } from './role-list.tsx'
import { RoleView } from './role-view.tsx'
import { RootConfigView } from './root-config.tsx'
import { StaticRoleView } from './static-role-view.tsx'

/** Cloud engines: `/cloud/MOUNT/roles/NAME`, `/cloud/MOUNT/static-roles/NAME`, `/cloud/MOUNT/orphans`, `/cloud/MOUNT/root`. */
export default function CloudView(_props: ViewProps) {
  const [, mount, area = 'roles', name] = segmentsOf(path.value)
  if (mount === undefined) return <MountList />
  if (area === 'roles') {
    return name === undefined ? <RoleList mount={mount} folder="roles" /> : <RoleView mount={mount} name={name} />
  }
  if (area === 'static-roles') {
    if (name !== undefined) return <StaticRoleView mount={mount} name={name} />
    return <RoleList mount={mount} folder="static-roles" />
  }
  if (area === 'orphans') return <OrphanList mount={mount} />
  if (area === 'root') return <RootConfigView mount={mount} />
  return <Failure error={new Error(`There is no view at ${path.value}.`)} hint="Open Cloud again." />
}

/** The mounts; the only one is opened at once. */
function MountList() {
  const resource = useResource((signal) => readMountsOfView('cloud', signal), [])
  const [first, ...others] = resource.data ?? []
  if (first !== undefined && others.length === 0) return <RoleList mount={first} folder="roles" />
  return (
    <View title="Cloud" isFull>
      <CoreLoaded resource={resource}>
        {(mounts) =>
          mounts.length === 0 ? (
            token.value === undefined ? (
              <LoginNeeded what="cloud engines" />
            ) : (
              <Empty title="No cloud engine that your token can use">
                <p>
                  An administrator enables one with: <code>outpost secrets enable cloud</code>
                </p>
              </Empty>
            )
          ) : (
            <DataTable
              label="Cloud engines"
              rows={mounts}
              columns={[{ title: 'Mount', cell: (mount) => mount, order: (mount) => mount }]}
              linkOf={(mount) => pathOf('cloud', mount)}
            />
          )
        }
      </CoreLoaded>
    </View>
  )
}
