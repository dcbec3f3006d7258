/** `outpost operator diagnose`. */
import { existsSync } from 'node:fs'
import { jsonOption, printJson } from '../../client/agent-target.ts'
import { CommandError, defineCommand } from '../../framework/define-command.ts'
import { texts, UsageError } from '../../framework/options.ts'
import { DIAGNOSIS_GROUPS, type DiagnosisFinding, type DiagnosisGroup } from '../../framework/services.ts'
import { escapeLine } from '../../framework/terminal-escapes.ts'
import { type Colour, counted, noColorOption, painted, terminalOf } from '../../output/terminal.ts'

/** As `vault operator diagnose`: 2 is not an invalid command line. */
const FAILURES = 1
const WARNINGS = 2
const USAGE = 3

/** Where the units of systemd expect the configuration. */
const DEFAULT_CONFIGS = ['/etc/outpost', '/etc/outpost-server']

const LABELS: Readonly<Record<DiagnosisFinding['status'], readonly [string, Colour]>> = {
  ok: ['  ok  ', 'green'],
  warning: [' warn ', 'yellow'],
  failure: ['failed', 'red'],
  skipped: [' skip ', 'dim'],
}

export const command = defineCommand({
  name: 'operator diagnose',
  summary: 'Check this host and its configuration for problems',
  details: [
    'Checks the configuration, the running service, owners and modes of files, disk space and the duration of an',
    'fsync, ports, certificates, login and permissions at each NATS server, clocks, databases, the seal, and',
    'versions. Changes nothing, and works while the service runs and while it is stopped. Run it as root or as the',
    'user of the service: other users cannot read keys and state.',
    '',
    'The database of a stopped server is read completely (PRAGMA quick_check); that of a running server is not. If',
    'the server is stopped and NATS is reachable, the clock check waits 13 seconds for heartbeats of the nodes.',
    '',
    'Each warning and failure has a next step. Exit code 0: all checks passed; 1: at least one failed; 2: at',
    'least one warning; 3: the command line is invalid.',
    '',
    'Examples:',
    '  outpost operator diagnose -config /etc/outpost-server',
    '  outpost operator diagnose -config server.hcl -skip nats -skip clock -json',
  ].join('\n'),
  options: {
    config: {
      ...texts('FILE|DIR', 'Configuration of the service'),
      shownDefault: '/etc/outpost or /etc/outpost-server if only one exists',
    },
    skip: { ...texts('CHECK', 'Check to skip'), choices: DIAGNOSIS_GROUPS },
    json: jsonOption,
    'no-color': noColorOption,
  },
  usageExitCode: USAGE,
  async run(values, _operands, io, services) {
    const skip = values.skip.map(groupOf)
    const config = values.config.length > 0 ? values.config : [defaultConfig()]
    if (!services.diagnose) throw new CommandError('this build does not contain the agent')
    const terminal = terminalOf(1, io.env, values['no-color'])
    const findings: DiagnosisFinding[] = []
    for await (const finding of services.diagnose({ config, skip })) {
      findings.push(finding)
      if (values.json) continue
      const [label, colour] = LABELS[finding.status]
      io.out(`[${painted(label, colour, terminal)}] ${finding.check}: ${escapeLine(finding.text)}\n`)
      if (finding.next !== undefined) io.out(`         next: ${escapeLine(finding.next)}\n`)
    }
    const count = (status: DiagnosisFinding['status']) => findings.filter((each) => each.status === status).length
    const [failures, warnings] = [count('failure'), count('warning')]
    if (values.json) printJson({ failures, warnings, findings }, io)
    else
      io.out(
        `\n${counted(failures, 'failure')}, ${counted(warnings, 'warning')}, ${count('ok')} ok, ${count('skipped')} skipped\n`,
      )
    if (failures > 0) return FAILURES
    return warnings > 0 ? WARNINGS : 0
  },
})

/** Throws UsageError. */
function groupOf(name: string): DiagnosisGroup {
  const group = DIAGNOSIS_GROUPS.find((each) => each === name)
  if (group !== undefined) return group
  throw new UsageError(`option -skip: ${JSON.stringify(name)} must be one of ${DIAGNOSIS_GROUPS.join(', ')}`)
}

/** Throws UsageError. */
function defaultConfig(): string {
  const [first, second] = DEFAULT_CONFIGS.filter((path) => existsSync(path))
  if (first !== undefined && second === undefined) return first
  const why =
    first === undefined ? `neither ${DEFAULT_CONFIGS.join(' nor ')} exists` : 'this host has two configurations'
  throw new UsageError(`missing -config: ${why}`)
}
