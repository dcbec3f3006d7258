import { useState } from 'preact/hooks'
import { Field } from '../../components/field.tsx'

/** Characters without a meaning in a shell. */
const PLAIN = /^[\w./:@%+=,-]*$/

function quoted(text: string): string {
  return PLAIN.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`
}

/** The drill runs on the host of the secondary, beside its database. */
export function Drill() {
  const [path, setPath] = useState('')
  const option = path.trim() === '' ? '' : ` -path ${quoted(path.trim())}`
  return (
    <section class="card" aria-label="Drill">
      <h2>Drill</h2>
      <p>
        Tests the promotion at any time: a copy of the database is promoted on another port, secrets are read from it,
        and it is removed. It runs on the host of this secondary, as the user of its server, and changes nothing outside
        the copy. Each step is printed with its duration.
      </p>
      <Field
        label="Path to read"
        placeholder="kv/data/app"
        hint="Empty: a sample of the secrets. Values are never printed"
        value={path}
        onInput={setPath}
      />
      <pre class="credentials" tabIndex={0} aria-label="Command">
        outpost operator dr drill -config /etc/outpost-server{option} - {'<'} shares.txt
      </pre>
    </section>
  )
}
