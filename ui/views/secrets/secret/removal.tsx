/** Deletion and destruction, after a confirmation. */
import { navigate } from '../../../app/location.ts'
import { showSuccess } from '../../../app/toasts.tsx'
import { Confirm } from '../../../components/dialog.tsx'
import { changeVersions, deleteCurrent, removeSecret } from '../kv.ts'
import type { Removal, SecretContext } from './secret-context.ts'
import { baseName, folderOf, viewOf } from '../secret-path.ts'

interface RemovalDialogProps {
  readonly context: SecretContext
  readonly removal: Removal
  readonly close: () => void
}

export function RemovalDialog({ close, context, removal }: RemovalDialogProps) {
  const { act, metadata, mount, name, reload } = context
  if (removal.kind === 'current') {
    const version = metadata?.current_version ?? 0
    const run = async () => {
      await act('delete', () => deleteCurrent(mount, name))
      showSuccess(`Deleted version ${version} of ${name}.`)
      reload()
    }
    return (
      <Confirm title={`Delete version ${version}?`} action="Delete" run={run} close={close}>
        Clients can no longer read the current version of <b>{name}</b>. It can be undeleted.
      </Confirm>
    )
  }
  if (removal.kind === 'destroy') {
    const { version } = removal
    const run = async () => {
      await act('destroy', () => changeVersions(mount, name, 'destroy', [version]))
      showSuccess(`Destroyed version ${version} of ${name}.`)
      reload()
    }
    return (
      <Confirm title={`Destroy version ${version}?`} action="Destroy" typed={baseName(name)} run={run} close={close}>
        The values of version {version} of <b>{name}</b> are removed. This cannot be undone.
      </Confirm>
    )
  }
  const run = async () => {
    if (mount.version === 1) await deleteCurrent(mount, name)
    else await act('remove', () => removeSecret(mount, name))
    showSuccess(`Deleted ${name}.`)
    navigate(viewOf(mount.path, folderOf(name)))
  }
  const count = metadata?.versions.length ?? 0
  return (
    <Confirm title={`Delete ${name}?`} action="Delete all" typed={baseName(name)} run={run} close={close}>
      {mount.version === 1
        ? 'The secret is removed.'
        : `${count === 1 ? 'The only version' : `All ${count} versions`} and the settings are removed.`}{' '}
      This cannot be undone.
    </Confirm>
  )
}
