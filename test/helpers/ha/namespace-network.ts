/**
 * A network namespace for each member of a cluster, connected by a bridge, so that any member can be cut off from any
 * other, in one direction or both. The process of the test reaches all of them. Needs root.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { randomInt } from 'node:crypto'
import type { TestContext } from 'node:test'
import type { MemberNetwork } from '../../../scripts/local-ha-cluster.ts'

const BRIDGE_HOST = 254

/** The reason why there are no network namespaces here; undefined if there are. */
export function whyNoNamespaces(): string | undefined {
  if (process.getuid?.() !== 0) return 'needs root'
  const able = spawnSync('unshare', ['--net', 'iptables', '-A', 'INPUT', '-s', '10.0.0.1', '-j', 'DROP'])
  return able.status === 0 ? undefined : 'needs the right to make network namespaces, and iptables'
}

function ip(...args: readonly string[]): void {
  execFileSync('ip', args, { stdio: ['ignore', 'ignore', 'pipe'] })
}

interface NetworkMember {
  readonly namespace: string
  readonly address: string
}

export class NamespaceNetwork implements MemberNetwork {
  readonly #members = new Map<string, NetworkMember>()

  /** All of it is removed after the test. Start the members after this, so that they end before. */
  static create(t: Pick<TestContext, 'after'>, members: readonly string[]): NamespaceNetwork {
    const network = new NamespaceNetwork()
    const id = randomInt(0x1000, 0xffff).toString(16)
    const prefix = `10.${randomInt(64, 127)}.${randomInt(1, 250)}`
    const bridge = `oha${id}`
    t.after(() => {
      for (const { namespace } of network.#members.values()) {
        spawnSync('ip', ['netns', 'delete', namespace], { stdio: 'ignore' })
      }
      spawnSync('ip', ['link', 'delete', bridge], { stdio: 'ignore' })
    })
    ip('link', 'add', bridge, 'type', 'bridge')
    ip('addr', 'add', `${prefix}.${BRIDGE_HOST}/24`, 'dev', bridge)
    ip('link', 'set', bridge, 'up')
    for (const [at, name] of members.entries()) {
      const [namespace, port, address] = [`oha${id}-${name}`, `oh${id}p${at}`, `${prefix}.${at + 1}`]
      ip('netns', 'add', namespace)
      network.#members.set(name, { namespace, address })
      ip('link', 'add', port, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', namespace)
      ip('link', 'set', port, 'master', bridge, 'up')
      ip('-n', namespace, 'addr', 'add', `${address}/24`, 'dev', 'eth0')
      ip('-n', namespace, 'link', 'set', 'eth0', 'up')
      ip('-n', namespace, 'link', 'set', 'lo', 'up')
    }
    return network
  }

  addressOf(member: string): string {
    return this.#member(member).address
  }

  through(member: string): readonly string[] {
    return ['nsenter', `--net=/run/netns/${this.#member(member).namespace}`]
  }

  /** The members `to` receive nothing from the members `from` until `heal`. */
  drop(from: readonly string[], to: readonly string[]): void {
    for (const receiver of to) {
      for (const sender of from) {
        if (sender === receiver) continue
        this.#filter(receiver, '-A', 'INPUT', '-s', this.addressOf(sender), '-j', 'DROP')
      }
    }
  }

  /** No member of one group reaches one of the other group until `heal`. */
  cut(one: readonly string[], other: readonly string[]): void {
    this.drop(one, other)
    this.drop(other, one)
  }

  heal(): void {
    for (const name of this.#members.keys()) this.#filter(name, '-F', 'INPUT')
  }

  #filter(member: string, ...args: readonly string[]): void {
    ip('netns', 'exec', this.#member(member).namespace, 'iptables', '-w', ...args)
  }

  #member(name: string): NetworkMember {
    const member = this.#members.get(name)
    if (!member) throw new Error(`there is no member ${name}`)
    return member
  }
}
