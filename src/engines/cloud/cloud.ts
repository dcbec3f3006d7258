/**
 * Cloud: short-lived credentials of AWS in place of keys in files. By a role a caller gets a user of IAM with an access key
 * that is removed when its lease ends, or a session of STS that ends by itself. Static roles adopt a user that is there and
 * rotate its key.
 *
 * Promises. Nothing that the engine made in AWS stays there without a lease (no orphan): before a user is made an *intent* is
 * committed (`intent-record.ts`); the commit that stores the lease clears it. What has no lease in the end is removed
 * (`rollback.ts`), after a failed request at once, after a killed process when the core is active again. An intent stays
 * until AWS says that its user is absent, also where the answer to its making was lost. Removing (`user-removal.ts`) can be
 * repeated after any failure; what is gone counts as done. A user that another one has made is never removed: those of a
 * mount carry its tags.
 *
 * Assumes that the root credentials may do what the roles need, and that the clock is right within minutes: AWS refuses
 * signatures that are not.
 *
 * What can go wrong. AWS throttles, or does not answer: a call is sent again with growing pauses (`aws.ts`), then refused
 * with 502 and AWS's text; revocations go on later (`secrets/leases`). The process is killed at any step: the next one finds
 * the intent. A new key is not known to AWS for some seconds: `wait` answers only when it is (`user-ready.ts`).
 *
 * Files. `aws.ts` is the port: the only one that loads the SDK, on the first call; other files have its types only, and
 * `AwsFailure` (`aws-failure.ts`) is all that they see of its errors; `aws-pace.ts` says how many requests are under way. `aws-target.ts` says where and with which credentials,
 * `mount-aws.ts` keeps the clients of one mount, `cloud-mount.ts` everything that a mount remembers. What is stored, and under
 * which path, is in `entries.ts` and the `…-record.ts` files. Paths: `root-paths.ts` (config/root), `lease-paths.ts`
 * (config/lease), `role-paths.ts` with `role-checks.ts`, `creds-paths.ts` with `users.ts` and `sessions.ts`. Names are made
 * by `username.ts` with the templates of `template-*.ts`. Keys of users that were there before: `rotate-root.ts`,
 * `static-*.ts`, and `key-intent.ts` for what is noted before such a key is made or deleted. `janitor-paths.ts` looks for users
 * that were forgotten by force. `federation.ts` has root credentials for a token of the server's own issuer
 * (`secrets/identity/oidc-issuer.ts`). `check-paths.ts` with `role-trial.ts` and `iam-permission-check.ts` is the dry run of a role.
 * `role-counts.ts` is what figures tell of roles. `session-cache.ts` has the sessions that callers share, `mount-records.ts` how many are made at a time, `check-limits.ts` what a dry run may
 * cost. `record-place.ts` says in which account a thing was made: that another one does not
 * have it means nothing.
 */
import type { Engine } from '../framework/engine.ts'
import { CloudMount } from './mount/cloud-mount.ts'
import { checkPaths } from './roles/check-paths.ts'
import { credsPaths } from './roles/creds-paths.ts'
import { janitorPaths } from './roles/janitor-paths.ts'
import { leasePaths } from './mount/lease-paths.ts'
import { rolePaths } from './roles/role-paths.ts'
import { rootPaths } from './root/root-paths.ts'
import { RootSchedule, rotateRootPaths } from './root/rotate-root.ts'
import { staticPaths } from './static/static-paths.ts'
import { StaticSchedule } from './static/static-rotation.ts'
import { forgotten, revoked } from './users/users.ts'

export const cloud: Engine = {
  type: 'cloud',
  description: 'short-lived credentials of AWS',
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
    ...janitorPaths,
  ],
  revoke: revoked,
  isRevokedInside: (internal) => internal['is_sts'] === true,
  forget: forgotten,
  metrics: (where) => CloudMount.of(where).counts.metrics(where.mount.path),
  async periodic(call) {
    await Promise.all([
      CloudMount.of(call).undo(call),
      RootSchedule.of(call).run(call),
      StaticSchedule.of(call).run(call),
    ])
  },
  async release(call) {
    const mount = CloudMount.of(call)
    const left = await mount.undo(call, true)
    if (left === 0) return []
    const why = mount.errors().map((each) => `; ${each}`)
    return [`users and keys of AWS that may be without a lease and cannot be removed yet: ${left}${why.join('')}`]
  },
}
