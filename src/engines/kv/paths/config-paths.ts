/** `config`: what holds for all secrets of a mount that say nothing else. */
import type { Path } from '../../framework/engine.ts'
import { boolean, integer, signedDuration } from '../../framework/fields.ts'
import { checkVersionsMax } from './metadata-paths.ts'
import { kvPath } from '../store/reads.ts'
import { durationText } from '../store/record.ts'
import { ChangingSecrets, Secrets } from '../store/secrets.ts'

const FIELDS = {
  max_versions: integer('Versions that are kept of a secret; 0 for ten'),
  cas_required: boolean('Whether writes must name the current version'),
  delete_version_after: signedDuration(
    'How long each new version lives at most; below 0 for ever, whatever a secret says',
  ),
  metadata_cas_required: boolean('Whether changes of metadata must name its current version'),
  list_filter: boolean('Whether lists leave out the names of secrets with which their caller may do nothing'),
}

export const configPaths: readonly Path[] = [
  kvPath({
    pattern: 'config',
    summary: 'Settings of all secrets of the mount',
    fields: FIELDS,
    read(_input, call) {
      const { casRequired, deleteAfterSeconds, listFilter, maxVersions, metadataCasRequired } = new Secrets(call).config
      return {
        data: {
          cas_required: casRequired,
          delete_version_after: durationText(deleteAfterSeconds),
          max_versions: maxVersions,
          metadata_cas_required: metadataCasRequired,
          // Who never heard of it sees what they always saw.
          ...(listFilter && { list_filter: true }),
        },
      }
    },
    update(input, call) {
      checkVersionsMax(input.max_versions)
      if (!Object.keys(FIELDS).some((name) => Object.hasOwn(call.data, name))) return undefined
      const secrets = new ChangingSecrets(call)
      const before = secrets.config
      secrets.putConfig({
        maxVersions: input.max_versions ?? before.maxVersions,
        casRequired: input.cas_required ?? before.casRequired,
        deleteAfterSeconds: Math.max(-1, input.delete_version_after ?? before.deleteAfterSeconds),
        metadataCasRequired: input.metadata_cas_required ?? before.metadataCasRequired,
        listFilter: input.list_filter ?? before.listFilter ?? false,
      })
      return { batch: secrets.batch }
    },
  }),
]
