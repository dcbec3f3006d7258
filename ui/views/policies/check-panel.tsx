/** Which rule decides about a request: evaluated in the page, also for a text that is not saved. */
import { useMemo, useState } from 'preact/hooks'
import { address, setQuery } from '../../app/location.ts'
import { Button } from '../../components/button.tsx'
import { Field } from '../../components/field.tsx'
import { ErrorText } from '../../components/states.tsx'
import { readPolicy } from './policies.ts'
import { pairsOf, placedLine, THIS_POLICY } from './policy-check.ts'
import { type PolicyAnswer, type PolicyDocument, type PolicyVerb, VERBS } from './policy-types.ts'
import { usePolicyAnswer } from './use-answer.ts'

interface CheckPanelProps {
  readonly name: string
  readonly text: string
}

export function CheckPanel({ name, text }: CheckPanelProps) {
  const { query } = address.value
  const path = query.get('path') ?? ''
  const verb = VERBS.find((each) => each === query.get('verb')) ?? 'read'
  const [parameters, setParameters] = useState('')
  const [entity, setEntity] = useState('')
  const [others, setOthers] = useState<readonly PolicyDocument[]>([])
  const documents = useMemo(() => [{ file: THIS_POLICY, text }, ...others], [text, others])
  const answer = usePolicyAnswer(documents, { path, verb, parameters, entity })
  const fault = pairsOf(parameters).fault ?? pairsOf(entity).fault
  return (
    <section class="card" aria-label="Check a request">
      <h2>Check a request</h2>
      <div class="form">
        <Field
          label="Path"
          value={path}
          placeholder="secret/data/app/db"
          isSearch
          onInput={(given) => setQuery({ path: given })}
        />
        <VerbSelect value={verb} />
        {path !== '' && answer && <Verdict answer={answer} />}
        <Field
          label="Parameters"
          rows={2}
          value={parameters}
          onInput={setParameters}
          hint="A line NAME=VALUE for each; VALUE is JSON or a string"
        />
        <Field
          label="Entity of the token"
          rows={1}
          value={entity}
          onInput={setEntity}
          hint="For templates: name=alice, id=… or metadata.team=ops"
        />
        <OtherPolicies name={name} others={others} onChange={setOthers} />
        {fault !== undefined && (
          <p class="error" role="alert">
            {fault}
          </p>
        )}
      </div>
    </section>
  )
}

function VerbSelect({ value }: { readonly value: PolicyVerb }) {
  return (
    <div class="field">
      <label for="policy-verb">Operation</label>
      <select id="policy-verb" value={value} onChange={(event) => setQuery({ verb: event.currentTarget.value })}>
        {VERBS.map((verb) => (
          <option key={verb} value={verb}>
            {verb}
          </option>
        ))}
      </select>
      <p class="hint">create writes a path without data, update one with data</p>
    </div>
  )
}

interface OtherPoliciesProps {
  readonly name: string
  readonly others: readonly PolicyDocument[]
  readonly onChange: (others: readonly PolicyDocument[]) => void
}

/** Further policies of the caller, as they are saved. */
function OtherPolicies({ name, onChange, others }: OtherPoliciesProps) {
  const [wanted, setWanted] = useState('')
  const [error, setError] = useState<Error>()
  const add = async () => {
    const other = wanted.trim().toLowerCase()
    if (other === '' || other === name || others.some(({ file }) => file === other)) return
    const policy = await readPolicy(other)
    if (!policy) throw new Error(`There is no policy ${other}.`)
    onChange([...others, { file: other, text: policy.policy }])
    setWanted('')
  }
  const submit = (event: Event) => {
    event.preventDefault()
    setError(undefined)
    add().catch((failure: unknown) => setError(failure instanceof Error ? failure : new Error(String(failure))))
  }
  return (
    <form onSubmit={submit}>
      <div class="policy-others">
        <Field label="Together with the policy" value={wanted} onInput={setWanted} placeholder="default" />
        <Button type="submit">Add</Button>
      </div>
      {others.map(({ file }) => (
        <Button
          key={file}
          label={`Without the policy ${file}`}
          onClick={() => onChange(others.filter((each) => each.file !== file))}
        >
          {file} <span aria-hidden="true">×</span>
        </Button>
      ))}
      {error && <ErrorText error={error} />}
    </form>
  )
}

function Verdict({ answer: { allowed, faults, reasons, unmatched, verdict } }: { readonly answer: PolicyAnswer }) {
  if (faults.length > 0) {
    return (
      <p class="error" role="status">
        Correct the document first: {placedLine(faults[0] ?? '').text}
      </p>
    )
  }
  return (
    <div role="status" class="verdict">
      <p>
        <span class={`badge badge-${allowed ? 'good' : 'bad'}`}>{allowed ? 'allowed' : 'denied'}</span>{' '}
        {verdict.replace(/^(?:allowed|denied): /, '')}
      </p>
      <Lines lines={reasons} />
      {unmatched.length > 0 && (
        <details>
          <summary>{unmatched.length === 1 ? '1 rule does' : `${unmatched.length} rules do`} not match</summary>
          <Lines lines={unmatched} />
        </details>
      )}
    </div>
  )
}

function Lines({ lines }: { readonly lines: readonly string[] }) {
  return (
    <ul class="policy-lines">
      {lines.map((line) => {
        const { place, text } = placedLine(line)
        return (
          <li key={line}>
            {place !== '' && <span class="muted">{place}: </span>}
            {text}
          </li>
        )
      })}
    </ul>
  )
}
