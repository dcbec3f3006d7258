/** The commands for secrets, in the order in which help shows them. */
import type { TableRow } from './framework/command-shape.ts'
import { DR_TABLE } from './command-table-dr.ts'

export const SECRETS_TABLE: readonly TableRow[] = [
  {
    name: 'status',
    summary: 'Show whether the secrets are open, and how far an unsealing is',
    load: () => import('./commands/operator/status.ts'),
  },
  {
    name: 'operator init',
    summary: 'Make the keys of a new secrets core, and the first root token',
    load: () => import('./commands/operator/init.ts'),
  },
  {
    name: 'operator unseal',
    summary: 'Give a key share to open the secrets',
    load: () => import('./commands/operator/unseal.ts'),
  },
  {
    name: 'operator seal',
    summary: 'Seal the secrets core',
    load: () => import('./commands/operator/seal.ts'),
  },
  {
    name: 'operator status',
    summary: 'The same as status',
    load: async () => ({ command: (await import('./commands/operator/status.ts')).operatorStatus }),
  },
  {
    name: 'operator rekey',
    summary: 'Give out other key shares',
    load: () => import('./commands/operator/rekey.ts'),
  },
  {
    name: 'operator rotate',
    summary: 'Go over to a new key for what is written',
    load: () => import('./commands/operator/rotate.ts'),
  },
  {
    name: 'operator key-status',
    summary: 'Show which key entries are encrypted with',
    load: async () => ({ command: (await import('./commands/operator/rotate.ts')).keyStatus }),
  },
  {
    name: 'operator generate-root',
    summary: 'Make a root token, or a DR operation token, from key shares',
    load: () => import('./commands/operator/generate-root.ts'),
  },
  ...DR_TABLE,
  {
    name: 'operator snapshot save',
    summary: 'Take a snapshot of all secrets while the server goes on',
    load: () => import('./commands/operator/snapshot-save.ts'),
  },
  {
    name: 'operator snapshot restore',
    summary: 'Put a snapshot in the place of all secrets',
    load: () => import('./commands/operator/snapshot-restore.ts'),
  },
  {
    name: 'login',
    summary: 'Log in, or check a token, and keep the token for the commands that follow',
    load: () => import('./commands/login.ts'),
  },
  {
    name: 'exec',
    summary: 'Run a command with secrets in its environment or in files, and keep them fresh',
    load: () => import('./commands/exec/exec.ts'),
  },
  {
    name: 'read',
    summary: 'Read what is at a path of the secrets core',
    load: () => import('./commands/read.ts'),
  },
  {
    name: 'write',
    summary: 'Write data to a path of the secrets core',
    load: () => import('./commands/write.ts'),
  },
  {
    name: 'patch',
    summary: 'Change parts of what is at a path',
    load: () => import('./commands/patch.ts'),
  },
  {
    name: 'list',
    summary: 'List the names below a path',
    load: () => import('./commands/list.ts'),
  },
  {
    name: 'delete',
    summary: 'Delete what is at a path',
    load: () => import('./commands/delete.ts'),
  },
  {
    name: 'unwrap',
    summary: 'Get the answer that a wrapping token stands for, once',
    load: () => import('./commands/unwrap.ts'),
  },
  {
    name: 'kv get',
    summary: 'Print a secret',
    load: () => import('./commands/kv/get.ts'),
  },
  {
    name: 'kv put',
    summary: 'Write a secret, as a new version',
    load: () => import('./commands/kv/put.ts'),
  },
  {
    name: 'kv patch',
    summary: 'Change parts of a secret, as a new version',
    load: () => import('./commands/kv/patch.ts'),
  },
  {
    name: 'kv list',
    summary: 'List the names of secrets',
    load: () => import('./commands/kv/list.ts'),
  },
  {
    name: 'kv delete',
    summary: 'Mark versions of a secret as deleted',
    load: () => import('./commands/kv/versions.ts'),
  },
  {
    name: 'kv undelete',
    summary: 'Take back that versions were deleted',
    load: async () => ({ command: (await import('./commands/kv/versions.ts')).undelete }),
  },
  {
    name: 'kv destroy',
    summary: 'Remove the data of versions for good',
    load: async () => ({ command: (await import('./commands/kv/versions.ts')).destroy }),
  },
  {
    name: 'kv rollback',
    summary: 'Write an older version of a secret anew',
    load: () => import('./commands/kv/rollback.ts'),
  },
  {
    name: 'kv watch',
    summary: 'Print what happens to secrets, as it happens',
    load: () => import('./commands/kv/watch.ts'),
  },
  {
    name: 'kv diff',
    summary: 'Show what is different between two versions of a secret',
    load: () => import('./commands/kv/diff.ts'),
  },
  {
    name: 'kv search',
    summary: 'Find secrets by name and custom metadata',
    load: () => import('./commands/kv/search.ts'),
  },
  {
    name: 'kv copy',
    summary: 'Copy a secret with its history',
    load: () => import('./commands/kv/copy.ts'),
  },
  {
    name: 'kv move',
    summary: 'Give a secret another name, with its history',
    load: async () => ({ command: (await import('./commands/kv/copy.ts')).move }),
  },
  {
    name: 'kv transaction',
    summary: 'Change several secrets, all of them or none',
    load: () => import('./commands/kv/transaction.ts'),
  },
  {
    name: 'kv export',
    summary: 'Write a folder of secrets as JSON, or a secret as a .env file',
    load: () => import('./commands/kv/export.ts'),
  },
  {
    name: 'kv import',
    summary: 'Write what an export has, where it is different',
    load: () => import('./commands/kv/import.ts'),
  },
  {
    name: 'kv metadata get',
    summary: 'Show the settings of a secret, and its versions',
    load: () => import('./commands/kv/metadata-get.ts'),
  },
  {
    name: 'kv metadata put',
    summary: 'Set how a secret is kept',
    load: async () => ({ command: (await import('./commands/kv/metadata-write.ts')).put }),
  },
  {
    name: 'kv metadata patch',
    summary: 'Change how a secret is kept',
    load: async () => ({ command: (await import('./commands/kv/metadata-write.ts')).patch }),
  },
  {
    name: 'kv metadata delete',
    summary: 'Remove a secret with all of its versions',
    load: async () => ({ command: (await import('./commands/kv/metadata-write.ts')).remove }),
  },
  {
    name: 'kv enable-versioning',
    summary: 'Make a store of secrets one that keeps versions',
    load: () => import('./commands/kv/enable-versioning.ts'),
  },
  {
    name: 'token create',
    summary: 'Make a token',
    load: () => import('./commands/token/create.ts'),
  },
  {
    name: 'token lookup',
    summary: 'Show what is known of a token',
    load: () => import('./commands/token/lookup.ts'),
  },
  {
    name: 'token renew',
    summary: 'Make a token last longer',
    load: () => import('./commands/token/renew.ts'),
  },
  {
    name: 'token revoke',
    summary: 'End a token, and those that were made with it',
    load: () => import('./commands/token/revoke.ts'),
  },
  {
    name: 'token capabilities',
    summary: 'Show what a token may do at a path',
    load: () => import('./commands/token/capabilities.ts'),
  },
  {
    name: 'policy list',
    summary: 'List the names of the policies',
    load: () => import('./commands/policy/list.ts'),
  },
  {
    name: 'policy read',
    summary: 'Print a policy',
    load: () => import('./commands/policy/read.ts'),
  },
  {
    name: 'policy write',
    summary: 'Write a policy from a file',
    load: () => import('./commands/policy/write.ts'),
  },
  {
    name: 'policy delete',
    summary: 'Delete a policy',
    load: () => import('./commands/policy/delete.ts'),
  },
  {
    name: 'policy fmt',
    summary: 'Lay a policy file out evenly',
    load: () => import('./commands/policy/fmt.ts'),
  },
  {
    name: 'policy check',
    summary: 'Say whether a policy allows a request, and which rule decides',
    load: () => import('./commands/policy/check.ts'),
  },
  {
    name: 'secrets list',
    summary: 'List the secret engines that are enabled',
    load: async () => ({ command: (await import('./commands/secrets/list.ts')).secrets }),
  },
  {
    name: 'secrets enable',
    summary: 'Enable a secret engine',
    load: async () => ({ command: (await import('./commands/secrets/enable.ts')).secrets }),
  },
  {
    name: 'secrets disable',
    summary: 'Disable a secret engine',
    load: async () => ({ command: (await import('./commands/secrets/disable.ts')).secrets }),
  },
  {
    name: 'secrets tune',
    summary: 'Change settings of a secret engine',
    load: async () => ({ command: (await import('./commands/secrets/tune.ts')).secrets }),
  },
  {
    name: 'secrets move',
    summary: 'Move a secret engine to another path',
    load: async () => ({ command: (await import('./commands/secrets/move.ts')).secrets }),
  },
  {
    name: 'auth list',
    summary: 'List the auth methods that are enabled',
    load: async () => ({ command: (await import('./commands/secrets/list.ts')).auth }),
  },
  {
    name: 'auth enable',
    summary: 'Enable an auth method',
    load: async () => ({ command: (await import('./commands/secrets/enable.ts')).auth }),
  },
  {
    name: 'auth disable',
    summary: 'Disable an auth method',
    load: async () => ({ command: (await import('./commands/secrets/disable.ts')).auth }),
  },
  {
    name: 'auth tune',
    summary: 'Change settings of an auth method',
    load: async () => ({ command: (await import('./commands/secrets/tune.ts')).auth }),
  },
  {
    name: 'auth move',
    summary: 'Move an auth method to another path',
    load: async () => ({ command: (await import('./commands/secrets/move.ts')).auth }),
  },
  {
    name: 'audit list',
    summary: 'List the audit devices',
    load: () => import('./commands/audit/list.ts'),
  },
  {
    name: 'audit enable',
    summary: 'Record every request in a file, or send it to a socket',
    load: () => import('./commands/audit/enable.ts'),
  },
  {
    name: 'audit disable',
    summary: 'Disable an audit device',
    load: () => import('./commands/audit/disable.ts'),
  },
  {
    name: 'audit hash',
    summary: 'Show what a value looks like in the lines of an audit device',
    load: () => import('./commands/audit/hash.ts'),
  },
  {
    name: 'audit acknowledge',
    summary: 'Acknowledge a broken audit chain',
    load: () => import('./commands/audit/acknowledge.ts'),
  },
  {
    name: 'audit verify',
    summary: 'Check that no line of audit files was changed, removed or added',
    load: () => import('./commands/audit/verify.ts'),
  },
  {
    name: 'entity list',
    summary: 'List the names of all entities',
    load: async () => ({ command: (await import('./commands/identity/identity-commands.ts')).entityList }),
  },
  {
    name: 'entity read',
    summary: 'Show an entity: its aliases, groups and policies',
    load: async () => ({ command: (await import('./commands/identity/identity-commands.ts')).entityRead }),
  },
  {
    name: 'entity write',
    summary: 'Make or change an entity',
    load: async () => ({ command: (await import('./commands/identity/identity-commands.ts')).entityWrite }),
  },
  {
    name: 'entity delete',
    summary: 'Remove an entity: its tokens have no rights any more',
    load: async () => ({ command: (await import('./commands/identity/identity-commands.ts')).entityDelete }),
  },
  {
    name: 'group list',
    summary: 'List the names of all groups',
    load: async () => ({ command: (await import('./commands/identity/identity-commands.ts')).groupList }),
  },
  {
    name: 'group read',
    summary: 'Show a group: its members and policies',
    load: async () => ({ command: (await import('./commands/identity/identity-commands.ts')).groupRead }),
  },
  {
    name: 'group write',
    summary: 'Make or change a group',
    load: async () => ({ command: (await import('./commands/identity/identity-commands.ts')).groupWrite }),
  },
  {
    name: 'group delete',
    summary: 'Remove a group',
    load: async () => ({ command: (await import('./commands/identity/identity-commands.ts')).groupDelete }),
  },
  {
    name: 'mfa totp list',
    summary: 'List the names of the TOTP methods',
    load: async () => ({ command: (await import('./commands/mfa/totp-methods.ts')).list }),
  },
  {
    name: 'mfa totp read',
    summary: 'Show the parameters of a TOTP method',
    load: async () => ({ command: (await import('./commands/mfa/totp-methods.ts')).read }),
  },
  {
    name: 'mfa totp write',
    summary: 'Make a TOTP method, or replace its parameters',
    load: async () => ({ command: (await import('./commands/mfa/totp-methods.ts')).write }),
  },
  {
    name: 'mfa totp delete',
    summary: 'Remove a TOTP method, with the secrets of all entities',
    load: async () => ({ command: (await import('./commands/mfa/totp-methods.ts')).remove }),
  },
  {
    name: 'mfa totp generate',
    summary: 'Generate a secret for yourself, and show its QR code',
    load: async () => ({ command: (await import('./commands/mfa/totp-secrets.ts')).generate }),
  },
  {
    name: 'mfa totp confirm',
    summary: 'Put your secret in force by its first code',
    load: async () => ({ command: (await import('./commands/mfa/totp-secrets.ts')).confirm }),
  },
  {
    name: 'mfa totp admin-generate',
    summary: 'Generate a secret for an entity, and show its QR code',
    load: async () => ({ command: (await import('./commands/mfa/totp-secrets.ts')).adminGenerate }),
  },
  {
    name: 'mfa totp admin-confirm',
    summary: 'Put the secret of an entity in force by its first code',
    load: async () => ({ command: (await import('./commands/mfa/totp-secrets.ts')).adminConfirm }),
  },
  {
    name: 'mfa totp admin-destroy',
    summary: 'Destroy the secret of an entity',
    load: async () => ({ command: (await import('./commands/mfa/totp-secrets.ts')).adminDestroy }),
  },
  {
    name: 'mfa totp replace',
    summary: 'Destroy the secret of an entity and generate another one, in one step',
    load: async () => ({ command: (await import('./commands/mfa/totp-secrets.ts')).replace }),
  },
  {
    name: 'mfa totp unlock',
    summary: 'End the lock-out of an entity',
    load: async () => ({ command: (await import('./commands/mfa/totp-secrets.ts')).unlock }),
  },
  {
    name: 'mfa totp status',
    summary: 'Show which entities have a secret; of one, when it was used and what failed',
    load: async () => ({ command: (await import('./commands/mfa/totp-secrets.ts')).status }),
  },
  {
    name: 'cloud creds',
    summary: 'Get credentials of AWS by a role, in the form in which programs take them',
    load: () => import('./commands/cloud/creds.ts'),
  },
  {
    name: 'cloud role check',
    summary: 'Say whether a role can give credentials of AWS, without getting any',
    load: () => import('./commands/cloud/role-check.ts'),
  },
  {
    name: 'lease lookup',
    summary: 'Show what is known of a lease',
    load: () => import('./commands/lease/lookup.ts'),
  },
  {
    name: 'lease renew',
    summary: 'Let a lease last longer',
    load: () => import('./commands/lease/renew.ts'),
  },
  {
    name: 'lease revoke',
    summary: 'Take back what leases stand for',
    load: () => import('./commands/lease/revoke.ts'),
  },
  {
    name: 'lease list',
    summary: 'List the leases below a prefix',
    load: () => import('./commands/lease/list.ts'),
  },
  {
    name: 'lease count',
    summary: 'Count the leases that cannot be taken back, by mount',
    load: () => import('./commands/lease/count.ts'),
  },
]
