/**
 * A strict parser of the Prometheus text format: checks the rules of `promtool check metrics` and that each series
 * occurs once.
 */

export interface Series {
  readonly name: string
  readonly labels: ReadonlyMap<string, string>
  readonly value: number
}

const NAME = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/
const LINE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$/
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)/y
const TYPES = new Set(['counter', 'gauge', 'histogram', 'summary', 'untyped'])
/** Units with a base unit that must be used instead, at the end of a name or before `_total`. */
const ODD_UNITS = /_(milliseconds|microseconds|nanoseconds|minutes|hours|kilobytes|megabytes|bits|ms|us|ns)(_total)?$/

/** All faults of a text, and its series. */
export function readExposition(text: string): { faults: string[]; series: Series[] } {
  const reader = new Reader()
  if (!text.endsWith('\n')) reader.faults.push('the last line does not end')
  for (const line of text.split('\n')) if (line !== '') reader.line(line)
  reader.end()
  return { faults: reader.faults, series: reader.series }
}

class Reader {
  readonly faults: string[] = []
  readonly series: Series[] = []
  readonly #types = new Map<string, string>()
  readonly #helps = new Set<string>()
  readonly #seen = new Set<string>()
  #family = ''

  line(line: string): void {
    const [, word, name = '', rest = ''] = /^# (HELP|TYPE) (\S+) ?(.*)$/.exec(line) ?? []
    if (word === 'HELP') this.#help(name, rest)
    else if (word === 'TYPE') this.#type(name, rest)
    else if (line.startsWith('#')) this.faults.push(`a comment: ${line}`)
    else this.#sample(line)
  }

  #help(name: string, help: string): void {
    if (!NAME.test(name)) this.faults.push(`${name}: not a name`)
    if (help === '') this.faults.push(`${name}: no help text`)
    if (this.#helps.has(name)) this.faults.push(`${name}: HELP stands twice`)
    this.#helps.add(name)
  }

  #type(name: string, type: string): void {
    if (!TYPES.has(type)) this.faults.push(`${name}: unknown type ${type}`)
    if (this.#types.has(name)) this.faults.push(`${name}: TYPE stands twice`)
    if (!this.#helps.has(name)) this.faults.push(`${name}: TYPE before HELP`)
    this.#types.set(name, type)
    this.#family = name
    if (/[A-Z]/.test(name)) this.faults.push(`${name}: upper case`)
    if (ODD_UNITS.test(name)) this.faults.push(`${name}: not a base unit`)
    if (type === 'untyped') return
    if (type === 'counter' && !name.endsWith('_total')) this.faults.push(`${name}: a counter without _total`)
    if (type !== 'counter' && name.endsWith('_total')) this.faults.push(`${name}: _total and no counter`)
    if (/_(bucket|count|sum)$/.test(name)) this.faults.push(`${name}: a reserved ending`)
    if (/_(gauge|counter|histogram|summary)(_|$)/.test(name)) this.faults.push(`${name}: its type in its name`)
  }

  #sample(line: string): void {
    const [, name = '', inside = '', text = ''] = LINE.exec(line) ?? []
    if (name === '') return void this.faults.push(`not a sample: ${line}`)
    const labels = this.#labels(line, inside)
    const type = this.#types.get(this.#family)
    const ending = name.slice(this.#family.length)
    const endings =
      type === 'histogram' ? ['_bucket', '_sum', '_count'] : type === 'summary' ? ['', '_sum', '_count'] : ['']
    if (!name.startsWith(this.#family) || !endings.includes(ending)) this.faults.push(`${name}: outside its family`)
    if (labels.has('le') !== (ending === '_bucket' && type === 'histogram')) this.faults.push(`${name}: label le`)
    if (labels.has('quantile') && type !== 'summary') this.faults.push(`${name}: label quantile`)
    const value = text === '+Inf' ? Infinity : text === '-Inf' ? -Infinity : Number(text)
    if (Number.isNaN(value)) this.faults.push(`${name}: value ${text}`)
    if (type === 'counter' && value < 0) this.faults.push(`${name}: a counter below zero`)
    const key = JSON.stringify([name, [...labels].map(String).sort()])
    if (this.#seen.has(key)) this.faults.push(`twice: ${line}`)
    this.#seen.add(key)
    this.series.push({ name, labels, value })
  }

  #labels(line: string, inside: string): Map<string, string> {
    const labels = new Map<string, string>()
    LABEL.lastIndex = 0
    while (LABEL.lastIndex < inside.length) {
      const [whole, name = '', value = ''] = LABEL.exec(inside) ?? []
      if (whole === undefined) {
        this.faults.push(`labels: ${line}`)
        break
      }
      if (labels.has(name)) this.faults.push(`label ${name} twice: ${line}`)
      labels.set(
        name,
        value.replaceAll(/\\(.)/g, (_, char: string) => (char === 'n' ? '\n' : char)),
      )
    }
    return labels
  }

  /** Buckets increase, and the last one counts everything. */
  end(): void {
    for (const [family, type] of this.#types) {
      const own = this.series.filter(({ name }) => name.startsWith(family))
      if (own.length === 0) this.faults.push(`${family}: no series`)
      if (type !== 'histogram') continue
      const last = new Map<string, number>()
      for (const { name, labels, value } of own) {
        const key = JSON.stringify([...labels].filter(([label]) => label !== 'le'))
        if (name === `${family}_bucket` && value < (last.get(key) ?? 0)) this.faults.push(`${family}: buckets shrink`)
        if (name === `${family}_bucket`) last.set(key, value)
        if (name === `${family}_count` && value !== last.get(key)) this.faults.push(`${family}: +Inf is not the count`)
      }
    }
  }
}
