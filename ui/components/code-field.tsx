import { useId, useMemo, useRef } from 'preact/hooks'
import { firstInvisible } from '../app/invisible-characters.ts'

interface CodeFieldProps {
  readonly label: string
  readonly value: string
  readonly onInput: (value: string) => void
  /** A line with a fault. */
  readonly faultLine?: number
  readonly isReadOnly?: boolean
  /** The element that describes the fault. */
  readonly describedBy?: string
}

/** A text field with line numbers, for text whose lines are not wrapped. Tab moves the focus, as in each field. */
export function CodeField({ describedBy, faultLine, isReadOnly, label, onInput, value }: CodeFieldProps) {
  const id = useId()
  const gutter = useRef<HTMLPreElement>(null)
  const lines = useMemo(() => value.split('\n').length, [value])
  const numbers = useMemo(() => Array.from({ length: lines }, (_, index) => index + 1).join('\n'), [lines])
  const invisible = useMemo(() => firstInvisible(value), [value])
  const field = (
    <div class="code-field">
      <label for={id} class="visually-hidden">
        {label}
      </label>
      <pre class="code-gutter" aria-hidden="true" ref={gutter}>
        {numbers}
        {faultLine !== undefined && (
          <span class="code-fault" style={{ top: `calc(var(--code-line) * ${faultLine - 1} + 6px)` }} />
        )}
      </pre>
      <textarea
        id={id}
        value={value}
        readOnly={isReadOnly}
        spellcheck={false}
        autoComplete="off"
        autoCapitalize="off"
        wrap="off"
        aria-invalid={faultLine !== undefined}
        aria-describedby={describedBy}
        onInput={(event) => onInput(event.currentTarget.value)}
        onScroll={(event) => {
          if (gutter.current) gutter.current.scrollTop = event.currentTarget.scrollTop
        }}
      />
    </div>
  )
  return (
    <>
      {field}
      {invisible && (
        <p class="error" role="status">
          Line {invisible.line} has the invisible character {invisible.name}, so the text may differ from what is
          displayed.
        </p>
      )}
    </>
  )
}
