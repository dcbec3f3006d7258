/** `delete/`, `undelete/` and `destroy/`: what happens to versions that the caller names. */
import { type EngineCall, type Path, Rejection, type Reply } from '../../framework/engine.ts'
import { inPath, integerList } from '../../framework/fields.ts'
import { kvPath } from '../store/reads.ts'
import { ChangingSecrets } from '../store/secrets.ts'

type Change = (secrets: ChangingSecrets, name: string, versions: readonly number[]) => void

function versionPath(pattern: string, summary: string, missing: string, change: Change): Path {
  return kvPath({
    pattern,
    summary,
    fields: { path: inPath('Name of the secret'), versions: integerList('Versions that are meant') },
    update({ path: name, versions }, call: EngineCall): Reply {
      if (!versions || versions.length === 0) throw new Rejection(400, missing)
      const secrets = new ChangingSecrets(call)
      change(secrets, name, versions)
      return { batch: secrets.batch }
    },
  })
}

export const versionPaths: readonly Path[] = [
  versionPath(
    'delete/:path+',
    'Delete versions so that they can be undeleted',
    'No version number provided',
    (secrets, name, versions) => secrets.softDelete(name, versions),
  ),
  versionPath(
    'undelete/:path+',
    'Bring deleted versions back',
    'No version number provided',
    (secrets, name, versions) => secrets.undelete(name, versions),
  ),
  versionPath(
    'destroy/:path+',
    'Remove the data of versions for good',
    'no version number provided',
    (secrets, name, versions) => secrets.destroy(name, versions),
  ),
]
