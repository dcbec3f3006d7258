/** `roles/:name/check`: whether a role can give credentials, told without giving any. */
import { path, type Path, Rejection } from '../../framework/engine.ts'
import { inPath } from '../../framework/fields.ts'
import { Trial } from './check-limits.ts'
import { CloudMount } from '../mount/cloud-mount.ts'
import { lineOf, outcomeOf } from '../mount/finding.ts'
import { checkName } from '../aws/names.ts'
import { roles } from '../mount/role-record.ts'
import { roleFindings } from './role-trial.ts'

export const checkPaths: readonly Path[] = [
  path({
    pattern: 'roles/:name/check',
    summary: 'Whether a role can give credentials: a dry run that leaves nothing in AWS',
    fields: { name: inPath('Name of the role') },
    async read({ name }, call) {
      checkName(name)
      const role = roles.read((each) => call.storage.get(each), call.mount, name)
      if (!role) throw new Rejection(404)
      const findings = await CloudMount.of(call).checking(() => roleFindings(role, new Trial(call)))
      const missing = findings.flatMap((each) => each.missing ?? [])
      return {
        data: {
          credential_type: role.types.join(','),
          result: outcomeOf(findings),
          missing_actions: [...new Set(missing)].toSorted(),
          findings: findings.map(lineOf),
        },
      }
    },
  }),
]
