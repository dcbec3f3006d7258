/** `/secrets/MOUNT/…`: a folder if the path ends with a slash, otherwise a secret. */
import { address } from '../../../app/location.ts'
import { useResource } from '../../../app/resource.ts'
import type { ViewProps } from '../../../app/view-props.ts'
import { token } from '../../../app/session.ts'
import { Empty } from '../../../components/states.tsx'
import { Link } from '../../../components/link.tsx'
import { View } from '../../../components/view.tsx'
import { viewOfType } from '../../access/secret-mounts.ts'
import { FolderView } from '../folder-view.tsx'
import { kvMountOf, readMount } from '../kv.ts'
import { LoadedSecrets } from '../states.tsx'
import { SecretDetails } from './secret-details.tsx'

/** Engines with the requests of KV. */
const KV_TYPES = new Set(['kv', 'generic', 'cubbyhole'])

export default function SecretView({ params }: ViewProps) {
  const mountPath = params['mount'] ?? ''
  const rest = params['rest'] ?? ''
  const name = rest !== '' && address.value.isFolder ? `${rest}/` : rest
  // Not loaded again when the core is sealed: the text of an editor would be lost.
  const resource = useResource((signal) => readMount(`${mountPath}/`, signal), [mountPath, token.value])
  if (resource.data === undefined || resource.data.path !== `${mountPath}/`) {
    const title = name === '' ? `${mountPath}/` : name
    return (
      <View title={title} parents={[{ title: 'Secrets', to: '/secrets' }]}>
        <LoadedSecrets resource={resource} missing="Check the path of the engine.">
          {({ path }) => (
            <Empty title={`There is no secrets engine at ${mountPath}/.`}>
              <p>The path belongs to the engine at {path}.</p>
            </Empty>
          )}
        </LoadedSecrets>
      </View>
    )
  }
  const { type } = resource.data
  if (!KV_TYPES.has(type)) return <OtherEngine mountPath={mountPath} type={type} />
  const mount = kvMountOf(resource.data)
  // The folder `app/` and the secret `app` have the same path without the slash.
  return name === '' || name.endsWith('/') ? (
    <FolderView key={name} mount={mount} folder={name} />
  ) : (
    <SecretDetails key={name} mount={mount} name={name} />
  )
}

function OtherEngine({ mountPath, type }: { readonly mountPath: string; readonly type: string }) {
  const view = viewOfType(type)
  return (
    <View title={`${mountPath}/`} parents={[{ title: 'Secrets', to: '/secrets' }]}>
      <Empty title={`The engine of type "${type}" has no folders of secrets.`}>
        {view !== undefined ? (
          <p>
            <Link to={`/${view}`}>Open its view</Link>
          </p>
        ) : (
          <p>Use it with the command line or the API.</p>
        )}
      </Empty>
    </View>
  )
}
