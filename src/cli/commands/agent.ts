/** `outpost agent`: parses its options. The daemon starts the agent (`DaemonServices.startAgent`). */
import { isUuid } from '../../platform/schema.ts'
import { checkOperands, CommandError, defineCommand } from '../framework/define-command.ts'
import { logLevelOption } from '../framework/log-level-option.ts'
import { flag, integer, parseOptions, text, texts, UsageError, type OptionValues } from '../framework/options.ts'
import type { AgentOptions } from '../framework/services.ts'

const PORT_MAX = 65_535
/** `EX_CONFIG` of sysexits.h. The systemd unit does not restart the agent until the configuration was changed. */
const EXIT_CONFIG = 78

const OPTIONS = {
  dev: flag('Run a development agent and server on loopback'),
  config: texts('FILE|DIR', 'Load an HCL or JSON configuration'),
  'http-port': integer({
    placeholder: 'N',
    help: 'Port of the HTTP API; 0 selects a free port',
    fallback: undefined,
    shownDefault: 'ports.http of the configuration, else 4646',
    min: 0,
    max: PORT_MAX,
  }),
  'cluster-port': integer({
    placeholder: 'N',
    help: 'Port for DR secondaries; 0 selects a free port',
    fallback: undefined,
    shownDefault: 'ports.cluster of the configuration, else 4647',
    min: 0,
    max: PORT_MAX,
  }),
  'data-dir': text({
    placeholder: 'DIR',
    help: 'Data directory; with -dev a temporary directory by default',
    fallback: undefined,
  }),
  'dev-root-token-id': text({
    placeholder: 'TOKEN',
    help: 'Root token for -dev instead of a random token',
    fallback: undefined,
    check: (value) => (/^[\x21-\x7e]+$/.test(value) ? undefined : 'must be printable ASCII without spaces'),
  }),
  'dev-no-demo': flag('Do not run the demo allocation of -dev'),
  'node-id': text({
    placeholder: 'UUID',
    help: 'Node ID instead of the ID in the data directory',
    fallback: undefined,
    check: (value) => (isUuid(value) ? undefined : 'must be a UUID'),
  }),
  'log-level': logLevelOption(),
}

/** Parses the arguments after `agent`. Throws UsageError, also for mutually exclusive options. */
export function readAgentOptions(args: readonly string[]): AgentOptions {
  const { values, operands } = parseOptions(OPTIONS, args, 'anywhere')
  checkOperands('agent', { shown: '', min: 0, max: 0 }, operands)
  return optionsFrom(values)
}

function optionsFrom(values: OptionValues<typeof OPTIONS>): AgentOptions {
  if (!values.dev && values.config.length === 0) {
    throw new UsageError('missing configuration: use -config FILE, or -dev for development')
  }
  for (const name of ['dev-root-token-id', 'dev-no-demo'] as const) {
    if (!values.dev && values[name] !== undefined && values[name] !== false) {
      throw new UsageError(`option -${name} requires -dev`)
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
  summary: 'Run an agent and/or a server',
  details: [
    '-dev runs an agent and a server in one process on loopback without a configuration. Only secrets require a',
    'token. Without -dev, the configuration selects the roles. To check a configuration, use "outpost validate',
    'FILE".',
    '',
    'On SIGTERM, the process finishes requests in progress and exits. On SIGHUP, it reloads the configuration and',
    'applies what can change at run time, such as log level, limits, TLS files and tokens. Exit code 78: the',
    'configuration is invalid.',
  ].join('\n'),
  options: OPTIONS,
  async run(values, _operands, _io, services) {
    const options = optionsFrom(values)
    if (!services.startAgent) throw new CommandError('this build does not contain the agent')
    try {
      return await services.startAgent(options)
    } catch (error) {
      // Loaded here because help and completion load this file as well.
      const { ConfigError } = await import('../../config/load.ts')
      if (!(error instanceof ConfigError)) throw error
      throw new CommandError(error.message, EXIT_CONFIG, { cause: error })
    }
  },
})
