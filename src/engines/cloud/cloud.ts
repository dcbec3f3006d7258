/**
 * Cloud: short-lived AWS credentials instead of keys in files. A role issues an IAM user with an access key, which is removed
 * when its lease expires, or an STS session, which expires on its own. A static role adopts an existing user and rotates its key.
 *
 * Promises. No resource that the engine creates in AWS remains without a lease. Before a user is created, an *intent* is
 * committed (`intents/user-records.ts`); the commit that stores the lease deletes it. A user without a lease is removed
 * (`intents/rollback.ts`): immediately after a failed request, and after a kill once the core is active again. An intent is
 * kept until AWS confirms that its user does not exist, also if the response to the creation was lost. Removal
 * (`intents/user-removal.ts`) is idempotent. The engine never removes a user of another creator: users of a mount have its tags.
 *
 * Assumptions. The root credentials have the permissions that the roles need. The clock is right within minutes: AWS refuses
 * signatures otherwise.
 *
 * Failure modes. AWS throttles, or does not respond: requests are retried with backoff (`aws/aws.ts`), then refused with 502
 * and the text of AWS; revocations are retried later (`secrets/leases`). The process is killed at any step: the next process
 * finds the intent. A new key is unknown to AWS for some seconds: with `wait` the response is delayed until AWS accepts it
 * (`users/user-creation.ts`). `config/root` is changed to another account (`aws/account.ts`): a resource that is not found there may
 * still exist.
 *
 * Folders. `aws`: clients (`aws.ts` is the only file that loads the SDK), their errors and limits, stored entries. `intents`:
 * intents, rollback and removal. `mount`: the state of a mount in memory, roles, the cache of shared sessions. `users`, `sessions`,
 * `static`, `root`: the kinds of credentials. `templates`: usernames. `roles`: paths of roles, issuing, dry runs, orphans.
 */
import type { Engine } from '../framework/engine.ts'
import { ENTRY_PATHS } from './aws/entries.ts'
import { CloudMount } from './mount/cloud-mount.ts'
import { checkPaths } from './roles/role-check-path.ts'
import { credsPaths } from './roles/creds-paths.ts'
import { orphanPaths } from './roles/orphan-paths.ts'
import { leasePaths, rootPaths } from './root/config-paths.ts'
import { rolePaths } from './roles/role-paths.ts'
import { RootSchedule, rotateRootPaths } from './root/rotate-root.ts'
import { staticPaths } from './static/static-paths.ts'
import { StaticSchedule } from './static/static-rotation.ts'
import { forgetUser, revokeUser } from './users/users.ts'

export const cloud: Engine = {
  type: 'cloud',
  counted: { noun: 'roles', folder: ENTRY_PATHS.roles },
  description: 'short-lived AWS credentials',
  // Stock clients enable it as `aws` and compare the type with what they read back.
  furtherTypes: ['aws'],
  paths: [
    ...rootPaths,
    ...rotateRootPaths,
    ...leasePaths,
    ...rolePaths,
    ...checkPaths,
    ...credsPaths,
    ...staticPaths,
    ...orphanPaths,
  ],
  revoke: revokeUser,
  isRevokedInside: (internal) => internal['is_sts'] === true,
  forget: forgetUser,
  metrics: (where) => CloudMount.of(where).metrics.metrics(where.mount.path),
  async periodic(call) {
    await Promise.all([
      CloudMount.of(call).rollBack(call),
      RootSchedule.of(call).run(call),
      StaticSchedule.of(call).run(call),
    ])
  },
  async release(call) {
    const mount = CloudMount.of(call)
    const remaining = await mount.rollBack(call, true)
    if (remaining === 0) return []
    const errors = mount.errors().map((each) => `; ${each}`)
    return [`AWS users and keys that may have no lease and cannot be removed yet: ${remaining}${errors.join('')}`]
  },
}
