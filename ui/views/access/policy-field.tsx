import { Field } from '../../components/field.tsx'
import { listOf } from '../../app/path-segments.ts'

const SHOWN_MAX = 30

interface PolicyFieldProps {
  readonly value: string
  readonly onInput: (value: string) => void
  /** Names of the server; undefined if they may not be listed. */
  readonly known: readonly string[] | undefined
}

/** Names of policies as text, with buttons for those of the server. */
export function PolicyField({ known = [], onInput, value }: PolicyFieldProps) {
  const chosen = listOf(value)
  const toggle = (name: string) =>
    onInput((chosen.includes(name) ? chosen.filter((each) => each !== name) : [...chosen, name]).join(', '))
  return (
    <div class="form">
      <Field label="Policies" hint="Names, separated by commas" value={value} onInput={onInput} />
      {known.length > 0 && (
        <div class="names" role="group" aria-label="Policies of the server">
          {known.slice(0, SHOWN_MAX).map((name) => (
            <button
              key={name}
              type="button"
              class="button"
              aria-pressed={chosen.includes(name)}
              onClick={() => toggle(name)}
            >
              {name}
            </button>
          ))}
        </div>
      )}
    </div>
  )
}
