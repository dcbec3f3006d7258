/** The options of every command that talks to an agent, and the agent that they mean. */
import type { CommandIo } from '../framework/command-shape.ts'
import { type AgentTarget, agentTarget } from './agent-target.ts'
import { flag, text } from '../framework/options.ts'
import { noColorOption } from '../output/terminal.ts'
import { shownJson } from '../framework/shown.ts'

export const agentOptions = {
  address: text({
    placeholder: 'URL',
    help: 'The agent to talk to',
    fallback: undefined,
    shownDefault: 'OUTPOST_ADDR, else NOMAD_ADDR, else VAULT_ADDR, else http://127.0.0.1:4646',
  }),
  'no-color': noColorOption,
}

export const jsonOption = flag('Print the answer as JSON')

/** The agent of a command about hosts. Throws CommandError. */
export function agentOf(values: { readonly address: string | undefined }, io: CommandIo): AgentTarget {
  return agentTarget(io.env, 'hosts', values.address)
}

/** As every command prints JSON. */
export function printJson(value: unknown, io: CommandIo): void {
  io.out(shownJson(`${JSON.stringify(value, undefined, 2)}\n`))
}
