/** An agent with what the pictures show: tasks with several kinds of logs, secrets with versions, users, tokens and codes. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { text as textOf } from 'node:stream/consumers'

const OUTPOST = resolve(import.meta.dirname, '../../bin/outpost')
const READY_MS = 60_000

interface Task {
  readonly job: string
  readonly task: string
  readonly script: string
}

/** Colored requests of a web server. */
const WEB = `n=0
while :; do
  n=$((n + 1)); ms=$((n * 37 % 180 + 3))
  case $((n % 11)) in
    0) printf '\\033[31m%s 503 GET /checkout %sms upstream timed out\\033[0m\\n' "$(date -u +%FT%TZ)" "$ms" ;;
    5) printf '%s \\033[33m404\\033[0m GET /favicon.ico \\033[2m%sms\\033[0m\\n' "$(date -u +%FT%TZ)" "$ms" ;;
    *) printf '%s \\033[32m200\\033[0m GET /orders/%s \\033[2m%sms\\033[0m\\n' "$(date -u +%FT%TZ)" "$n" "$ms" ;;
  esac
  sleep 0.2
done`

/** Structured lines, with a stack trace between them. */
const API = `n=0
while :; do
  n=$((n + 1)); at=$(date -u +%FT%TZ)
  echo "{\\"time\\":\\"$at\\",\\"level\\":\\"info\\",\\"msg\\":\\"order stored\\",\\"order\\":$n,\\"customer\\":{\\"id\\":$((n % 40)),\\"country\\":\\"AT\\"}}"
  if [ $((n % 9)) = 0 ]; then
    echo "{\\"time\\":\\"$at\\",\\"level\\":\\"warn\\",\\"msg\\":\\"slow query\\",\\"ms\\":$((n * 13 % 900 + 400))}"
  fi
  if [ $((n % 15)) = 0 ]; then
    echo "$at ERROR payment of order $n failed"
    echo "java.net.SocketTimeoutException: Read timed out"
    echo "    at shop.payment.Client.post(Client.java:118)"
    echo "    at shop.payment.Gateway.charge(Gateway.java:64)"
    echo "    at shop.order.Checkout.run(Checkout.java:41)"
  fi
  sleep 0.3
done`

const IMPORT = `echo "reading orders.csv"; echo "12,000 rows imported"`

const REPORT = `echo "generating the report of the day"
cat >&2 <<'END'
Traceback (most recent call last):
  File "/srv/report.py", line 31, in <module>
    main()
  File "/srv/report.py", line 22, in main
    rows = load(path)
FileNotFoundError: [Errno 2] No such file or directory: '/srv/orders.csv'
END
mkdir -p "$NOMAD_TASK_DIR" && echo '{"rows": 0, "state": "failed"}' > "$NOMAD_TASK_DIR/summary.json"
exit 1`

const TASKS: readonly Task[] = [
  { job: 'shop', task: 'web', script: WEB },
  { job: 'shop', task: 'api', script: API },
  { job: 'import', task: 'import', script: IMPORT },
  { job: 'report', task: 'report', script: REPORT },
]

const SHOP_POLICY = `# The shop reads its own secrets.
path "secret/data/shop/*" {
  capabilities = ["read"]
}

path "secret/metadata/shop/*" {
  capabilities = ["read", "list"]
}

# Codes of the payment provider.
path "totp/code/payments" {
  capabilities = ["read"]
}
`

export class Demo {
  readonly #directory = mkdtempSync(join(tmpdir(), 'outpost-screenshots-'))
  #agent: ChildProcess | undefined
  url = ''
  token = ''

  get #dataDirectory(): string {
    return join(this.#directory, 'data')
  }

  async start(): Promise<void> {
    const args = ['agent', '-dev', '-http-port', '0', '-data-dir', this.#dataDirectory]
    const agent = spawn(OUTPOST, args, { stdio: ['ignore', 'pipe', 'ignore'] })
    this.#agent = agent
    const printed = await new Promise<string>((resolve_, reject) => {
      let text = ''
      const timer = setTimeout(() => reject(new Error(`the agent was not ready in time: ${text}`)), READY_MS)
      agent.once('exit', (code) => reject(new Error(`the agent ended with code ${code}`)))
      agent.stdout.setEncoding('utf8').on('data', (piece: string) => {
        text += piece
        if (!text.includes('==> outpost agent started')) return
        clearTimeout(timer)
        resolve_(text)
      })
    })
    this.url = /URL: +(\S+)/.exec(printed)?.[1] ?? ''
    this.token = /Token: +(\S+)/.exec(printed)?.[1] ?? ''
    for (const task of TASKS) await this.#run(task)
    await this.#fillSecrets()
    await this.#fillAccess()
    await this.#fillEngines()
  }

  async #run({ job, script, task }: Task): Promise<void> {
    const args = ['alloc', 'run', '-detach', '-data-dir', this.#dataDirectory, '-job', job, '-task', task]
    const child = spawn(OUTPOST, [...args, '--', 'sh', '-c', script], { stdio: ['ignore', 'ignore', 'inherit'] })
    const [code] = await once(child, 'exit')
    if (code !== 0) throw new Error(`alloc run of ${task} ended with code ${code}`)
  }

  async #stopTasks(): Promise<void> {
    const list = spawn(OUTPOST, ['alloc', 'list', '-json', '-data-dir', this.#dataDirectory], { stdio: 'pipe' })
    const found = [...(await textOf(list.stdout)).matchAll(/"ID": ?"([^"]+)"/g)].map(([, id = '']) => id)
    for (const id of found) {
      const child = spawn(OUTPOST, ['alloc', 'stop', '-data-dir', this.#dataDirectory, id], { stdio: 'ignore' })
      await once(child, 'exit')
    }
  }

  /** A call with the token; the parsed response. */
  async call(method: string, path: string, body?: object): Promise<unknown> {
    const headers = { 'X-Vault-Token': this.token }
    const response = await fetch(`${this.url}/v1/${path}`, {
      method,
      headers,
      ...(body && { body: JSON.stringify(body) }),
    })
    const text = await response.text()
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`)
    return text === '' ? undefined : JSON.parse(text)
  }

  async #fillSecrets(): Promise<void> {
    const passwords = ['correct-horse-1', 'correct-horse-2', 'battery-staple-3']
    for (const password of passwords) {
      await this.call('POST', 'secret/data/shop/database', {
        data: { host: 'db.internal', port: 5432, user: 'shop', password },
      })
    }
    const others = ['shop/payments', 'shop/mail', 'shop/sessions', 'report/storage', 'wifi', 'backup/key']
    for (const name of others) await this.call('POST', `secret/data/${name}`, { data: { value: `of ${name}` } })
    await this.call('POST', 'secret/metadata/shop/database', {
      max_versions: 20,
      custom_metadata: { owner: 'team-shop', rotation: '90 days' },
    })
    await this.call('POST', 'secret/delete/shop/database', { versions: [2] })
    await this.call('POST', 'sys/mounts/legacy', {
      type: 'kv',
      description: 'Of the old shop',
      options: { version: '1' },
    })
  }

  async #fillAccess(): Promise<void> {
    await this.call('PUT', 'sys/policies/acl/shop', { policy: SHOP_POLICY })
    await this.call('PUT', 'sys/policies/acl/report', {
      policy: 'path "secret/data/report/*" { capabilities = ["read"] }',
    })
    await this.call('POST', 'sys/auth/userpass', { type: 'userpass' })
    await this.call('POST', 'sys/auth/approle', { type: 'approle' })
    await this.call('POST', 'auth/userpass/users/ann', { password: 'a long password', token_policies: ['shop'] })
    await this.call('POST', 'auth/approle/role/web', { token_policies: ['shop'], token_ttl: '1h' })
    for (const name of ['deploy', 'nightly-report', 'monitoring']) {
      const policies = name === 'nightly-report' ? ['report'] : ['shop']
      await this.call('POST', 'auth/token/create', { display_name: name, policies, ttl: '8h', no_parent: true })
    }
  }

  async #fillEngines(): Promise<void> {
    await this.call('POST', 'sys/mounts/totp', { type: 'totp' })
    const key = 'JBSWY3DPEHPK3PXP'
    for (const [name, issuer] of Object.entries({ payments: 'Payments', registrar: 'Registrar', mail: 'Mail' })) {
      await this.call('POST', `totp/keys/${name}`, { key, issuer, account_name: 'shop@example.com' })
    }
    await this.call('POST', 'cloud/config/root', {
      access_key: 'AKIAIOSFODNN7EXAMPLE',
      secret_key: 'wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY',
      region: 'eu-west-1',
    })
    const role_arns = ['arn:aws:iam::123456789012:role/deploy']
    await this.call('POST', 'cloud/roles/deploy', { credential_type: 'assumed_role', role_arns })
    await this.call('POST', 'cloud/roles/backup', {
      credential_type: 'iam_user',
      policy_arns: ['arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess'],
    })
  }

  /** IDs of the hosts and allocations, by task. */
  async places(): Promise<{ readonly node: string; readonly allocationOf: ReadonlyMap<string, string> }> {
    const stubs = (await this.call('GET', 'allocations')) as readonly {
      readonly ID: string
      readonly NodeID: string
      readonly TaskStates: Readonly<Record<string, unknown>>
    }[]
    const pairs = stubs.flatMap(({ ID, TaskStates }) => Object.keys(TaskStates).map((task) => [task, ID] as const))
    return { node: stubs[0]?.NodeID ?? '', allocationOf: new Map(pairs) }
  }

  async stop(): Promise<void> {
    if (this.#agent && this.#agent.exitCode === null) {
      await this.#stopTasks()
      const ended = once(this.#agent, 'exit')
      this.#agent.kill('SIGTERM')
      await ended
    }
    rmSync(this.#directory, { recursive: true, force: true })
  }
}
