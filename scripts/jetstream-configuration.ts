/** NATS configuration for high availability on this machine: without users, for the demonstration, tests and benchmarks. */

import { HaSubjects } from '../src/cluster/nats/ha-subjects.ts'

/** Each connection is of the account of outpost, which may request the state of the NATS servers. */
export function jetStreamConfiguration(storeDirectory: string, { region = 'global', sync = 'always' } = {}): string {
  return [
    `jetstream { store_dir: "${storeDirectory}", sync_interval: ${sync}, max_file_store: 1GB }`,
    'accounts {',
    '  OUTPOST {',
    '    jetstream: enabled',
    '    users: [ { user: outpost, password: outpost } ]',
    `    imports: [ { service: { account: SYS, subject: "$SYS.REQ.SERVER.PING.STATSZ" }, to: "${new HaSubjects(region).natsState}" } ]`,
    '  }',
    '  SYS { exports: [ { service: "$SYS.REQ.SERVER.PING.STATSZ", response: stream, accounts: [OUTPOST] } ] }',
    '}',
    'system_account: SYS',
    'no_auth_user: outpost',
  ].join('\n')
}
