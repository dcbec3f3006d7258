/** Filter, start and look of a tail. The filter and the start are parameters of the server. */
import { useId, useState } from 'preact/hooks'
import { address, setQuery } from '../../../app/location.ts'
import { Button } from '../../../components/button.tsx'
import { START_PARAMETERS } from './tail-query.ts'

const STARTS: readonly (readonly [value: string, title: string])[] = [
  ['lines=1000', 'Last 1,000 lines'],
  ['lines=10000', 'Last 10,000 lines'],
  ['lines=100000', 'Last 100,000 lines'],
  ['since=5m', 'Last 5 minutes'],
  ['since=1h', 'Last hour'],
  ['since=6h', 'Last 6 hours'],
  ['since=24h', 'Last day'],
  ['from=start', 'Start of the log'],
]
const HOUR_MS = 3_600_000
const TIME = 'time'
const LINE = 'line'

/** Replaces the start of the tail, such as `since=1h`. */
export function setStart(start: string): void {
  setQuery({ ...START_PARAMETERS, ...Object.fromEntries(new URLSearchParams(start)) })
}

function currentStart(query: URLSearchParams): string {
  if (query.has('cursor') || query.has('line')) return LINE
  for (const name of ['from', 'since', 'lines']) {
    const value = query.get(name)
    if (value !== null) return name === 'since' && localTime(value) !== '' ? TIME : `${name}=${value}`
  }
  return query.get('grep') ? 'from=start' : 'lines=1000'
}

export function OptionBar() {
  const { query } = address.value
  return (
    <div class="log-options">
      <FilterForm key={`${query.get('grep')} ${query.get('context')}`} />
      <StartChoice />
      <TypeChoice />
    </div>
  )
}

function FilterForm() {
  const { query } = address.value
  const [grep, setGrep] = useState(query.get('grep') ?? '')
  const [context, setContext] = useState(query.get('context') ?? '0')
  const [id, contextId] = [useId(), useId()]
  const isInverted = query.get('invert') === '1'
  const apply = (changes: Readonly<Record<string, string | undefined>> = {}) => {
    const filter = { grep, context: context === '0' || grep === '' ? undefined : context, ...changes }
    setQuery({ ...filter, cursor: undefined, line: undefined })
  }
  return (
    <form
      class="log-filter"
      onSubmit={(event) => {
        event.preventDefault()
        apply()
      }}
    >
      <label for={id}>Filter</label>
      <input
        id={id}
        type="text"
        class="log-grep"
        placeholder="Regular expression, searched on the host"
        autoComplete="off"
        spellcheck={false}
        value={grep}
        onInput={(event) => setGrep(event.currentTarget.value)}
      />
      <label for={contextId} title="Lines before and after each match">
        ±
      </label>
      <input
        id={contextId}
        class="log-context"
        type="text"
        inputMode="numeric"
        aria-label="Lines before and after each match"
        value={context}
        onInput={(event) => setContext(event.currentTarget.value)}
      />
      <Button pressed={isInverted} onClick={() => apply({ invert: isInverted ? undefined : '1' })}>
        Invert
      </Button>
      <Button type="submit">Apply</Button>
      {query.get('grep') && (
        <Button onClick={() => apply({ grep: undefined, context: undefined, invert: undefined })}>Clear</Button>
      )}
    </form>
  )
}

function StartChoice() {
  const { query } = address.value
  const id = useId()
  const [isTime, setTime] = useState(false)
  const current = currentStart(query)
  const shown = isTime ? TIME : current
  return (
    <div class="log-choice">
      <label for={id}>From</label>
      <select
        id={id}
        value={shown}
        onChange={({ currentTarget: { value } }) => {
          setTime(value === TIME)
          if (value !== TIME && value !== LINE) setStart(value)
        }}
      >
        {STARTS.map(([value, title]) => (
          <option key={value} value={value}>
            {title}
          </option>
        ))}
        {STARTS.every(([value]) => value !== current) && current.includes('=') && (
          <option value={current}>{current.replace('=', ' ')}</option>
        )}
        <option value={TIME}>A time…</option>
        {current === LINE && <option value={LINE}>The linked line</option>}
      </select>
      {shown === TIME && <TimeForm key={query.get('since')} since={query.get('since') ?? ''} />}
    </div>
  )
}

/** A local time as a field of the browser takes it. */
function localTime(since: string): string {
  const atMs = Date.parse(since)
  if (!Number.isFinite(atMs)) return ''
  const at = new Date(atMs)
  return new Date(atMs - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19)
}

function TimeForm({ since }: { readonly since: string }) {
  const [text, setText] = useState(() => localTime(since) || localTime(new Date(Date.now() - HOUR_MS).toISOString()))
  const atMs = Date.parse(text)
  return (
    <form
      class="log-time-form"
      onSubmit={(event) => {
        event.preventDefault()
        if (Number.isFinite(atMs)) setStart(`since=${encodeURIComponent(new Date(atMs).toISOString())}`)
      }}
    >
      <input
        type="datetime-local"
        step={1}
        aria-label="Start at this local time"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <Button type="submit" isDisabled={!Number.isFinite(atMs)}>
        Go
      </Button>
    </form>
  )
}

function TypeChoice() {
  const id = useId()
  const type = address.value.query.get('type') ?? '*'
  return (
    <div class="log-choice">
      <label for={id}>Output</label>
      <select id={id} value={type} onChange={({ currentTarget: { value } }) => setType(value)}>
        <option value="*">stdout and stderr</option>
        <option value="stdout">stdout</option>
        <option value="stderr">stderr</option>
      </select>
    </div>
  )
}

/** A cursor belongs to the outputs that it was received for. */
function setType(type: string): void {
  setQuery({ type: type === '*' ? undefined : type, cursor: undefined, line: undefined })
}
