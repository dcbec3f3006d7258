/**
 * The options of `outpost agent`. Only read here: starting an agent is the daemon's work.
 */
import type { Level } from '../../platform/log.ts'
import { CommandError, checkOperands, defineCommand } from '../framework/command-shape.ts'
import { isUuid } from '../../platform/schema.ts'
import type { ValuesOf } from '../framework/options.ts'
import { choice, flag, integer, parseOptions, text, texts, UsageError } from '../framework/options.ts'
import type { AgentOptions } from '../framework/parts.ts'

const PORT_MAX = 65_535
/** `EX_CONFIG` of sysexits.h: starting again is of no use until the configuration was changed, and the unit does not try. */
const EXIT_CONFIG = 78
/** In `Level`'s terms; written out, because a command that is not the agent need not load the log's code. */
const LEVELS = ['trace', 'debug', 'info', 'warn', 'error'] as const satisfies readonly Level[]

const OPTIONS = {
  dev: flag('Agent and server in one process for development: loopback only, no tokens needed but for secrets'),
  config: texts('FILE|DIR', 'Configuration to load, HCL or JSON'),
  'http-port': integer({
    placeholder: 'N',
    help: 'Port of the HTTP API, 0 for any free one; 4646 when the configuration does not say',
    fallback: undefined,
    min: 0,
    max: PORT_MAX,
  }),
  'cluster-port': integer({
    placeholder: 'N',
    help: 'Read, and without effect in this version: servers and agents meet over NATS',
    fallback: undefined,
    min: 0,
    max: PORT_MAX,
  }),
  'data-dir': text({
    placeholder: 'DIR',
    help: 'Where state is kept; with -dev and without this, a temporary directory that is removed at exit',
    fallback: undefined,
  }),
  'dev-root-token-id': text({
    placeholder: 'TOKEN',
    help: 'With -dev: the root token, instead of a random one',
    fallback: undefined,
    check: (value) => (/^[\x21-\x7e]+$/.test(value) ? undefined : 'must be printable ASCII without spaces'),
  }),
  'dev-no-demo': flag('With -dev: do not run the demo allocation'),
  'node-id': text({
    placeholder: 'UUID',
    help: 'ID of this node, instead of the one in the data directory',
    fallback: undefined,
    check: (value) => (isUuid(value) ? undefined : 'must be a UUID'),
  }),
  'log-level': choice({ placeholder: 'LEVEL', help: 'Least severe lines to log', choices: LEVELS }),
}

/** Options from the arguments behind `agent`. Throws UsageError, also for what makes no sense together. */
export function readAgentOptions(args: readonly string[]): AgentOptions {
  const { values, operands } = parseOptions(OPTIONS, args, 'anywhere')
  checkOperands('agent', { shown: '', min: 0, max: 0, missing: '' }, operands)
  return optionsFrom(values)
}

function optionsFrom(values: ValuesOf<typeof OPTIONS>): AgentOptions {
  if (!values.dev && values.config.length === 0) {
    throw new UsageError('the agent needs a configuration, give -config FILE or try -dev')
  }
  for (const name of ['dev-root-token-id', 'dev-no-demo'] as const) {
    if (!values.dev && values[name] !== undefined && values[name] !== false) {
      throw new UsageError(`option -${name} works only together with -dev`)
    }
  }
  return {
    dev: values.dev,
    httpPort: values['http-port'],
    clusterPort: values['cluster-port'],
    dataDir: values['data-dir'],
    devRootTokenId: values['dev-root-token-id'],
    devNoDemo: values['dev-no-demo'],
    nodeId: values['node-id']?.toLowerCase(),
    logLevel: values['log-level'],
    config: values.config,
  }
}

export const command = defineCommand({
  name: 'agent',
  summary: 'Run the agent, the server, or both',
  details: [
    'With -dev everything runs in one process on the loopback address and needs nothing else.',
    'Otherwise the configuration says what runs; "outpost validate FILE" checks one.',
    '',
    'SIGTERM ends it once requests in flight are done, SIGHUP reloads what can be reloaded.',
    'Exit code 78 means that the configuration is faulty.',
  ].join('\n'),
  options: OPTIONS,
  async run(values, _operands, _io, parts) {
    const options = optionsFrom(values)
    if (!parts.startAgent) throw new CommandError('this program was built without the agent')
    try {
      return await parts.startAgent(options)
    } catch (error) {
      // Loaded here only: help and completion read this file, too.
      const { ConfigError } = await import('../../config/load.ts')
      if (!(error instanceof ConfigError)) throw error
      throw new CommandError(error.message, EXIT_CONFIG, { cause: error })
    }
  },
})
