import { useState } from 'preact/hooks'
import { Button } from '../../components/button.tsx'
import { Field } from '../../components/field.tsx'

interface LookUpProps {
  /** What the field contains, such as "Accessor". */
  readonly label: string
  readonly action?: string
  readonly open: (text: string) => void
}

/** Opens an object by its name or ID, for tokens that may not list it. */
export function LookUp({ action = 'Look up', label, open }: LookUpProps) {
  const [text, setText] = useState('')
  const submit = (event: Event) => {
    event.preventDefault()
    if (text.trim() !== '') open(text.trim())
  }
  return (
    <form class="look-up" onSubmit={submit}>
      <Field label={label} isLabelHidden placeholder={label} autoComplete="off" value={text} onInput={setText} />
      <Button type="submit">{action}</Button>
    </form>
  )
}
